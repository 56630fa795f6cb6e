"""Facts about a kernel or a launch, as frozen values: what is active, what a reverse can read again, trip counts, uniformity, and proofs
about which threads come to which elements."""
