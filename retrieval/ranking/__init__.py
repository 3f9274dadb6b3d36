"""What finds and ranks passages."""
