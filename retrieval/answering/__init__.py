"""What weighs the evidence, answers and judges."""
