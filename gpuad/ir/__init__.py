"""The intermediate representation: types, the surface tree that frontends build, and the core nodes that every later pass reads."""
