package mutant

// Compiled says whether the bugs are in this binary. Overlay replaces this line.
const Compiled = false
