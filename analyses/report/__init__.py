"""What a run was found to compute, as a page that one can send to a colleague."""
