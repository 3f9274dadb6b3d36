"""The read side, one step per file; `retrieval.pipeline` runs the steps in order.

`question` reads the question, `ranking` finds and ranks passages, `answering` weighs the evidence,
answers and judges, `runs` records, reruns and traces.
"""
