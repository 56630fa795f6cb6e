"""Access relations of a launch: which instance of a statement touches which element, in Presburger arithmetic (isl)."""
