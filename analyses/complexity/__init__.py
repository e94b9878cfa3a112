"""The sample complexity of variable creation: how the smallest sufficient training set grows with T."""
