package ways

import (
	"slices"

	"lockkeeper/jepsen/locklab/lock"
	"lockkeeper/jepsen/locklab/ways/etcd"
	"lockkeeper/jepsen/locklab/ways/keeper"
	"lockkeeper/jepsen/locklab/ways/redis"
	"lockkeeper/jepsen/locklab/ways/sql"
)

// All are all ways to lock, in the order of tables, and twins with planted bugs: some of single
// ways among them, and at the end one of each way; the fenced twin of a way counts as that way.
func All() []lock.Way {
	all := slices.Concat(sql.Ways(), redis.Ways(), etcd.Ways(), keeper.Ways())
	for _, w := range slices.Clone(all) {
		if !w.Broken && !w.Optimistic && w.Twin == "" {
			all = append(all, impatient(w))
		}
	}
	return all
}
