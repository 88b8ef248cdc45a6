"""Inputs that nobody should have to send: whatever is given, a command ends in a right result or in one sentence."""
