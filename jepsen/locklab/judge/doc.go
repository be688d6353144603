// Package judge judges a history of the lock lab: who held the lock at the same time as another,
// which updates were lost, who was told of his loss and when, how long a lock outlived its holder,
// and the cost of a lock. And it has the expectations, with their sources, that were written down
// before anything was measured.
package judge
