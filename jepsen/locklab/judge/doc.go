// Package judge says what a history of the lock lab means: who held the lock at the same time as
// another, what was written over, who was told of his loss and when, how long a lock outlived its
// holder, and what a lock cost. And it has the expectations, with their sources, that were written
// down before anything was measured.
package judge
