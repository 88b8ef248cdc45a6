"""How good an explanation is: against known truth, against the model, and over seeds."""
