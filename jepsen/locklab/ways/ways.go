package ways

import (
	"slices"

	"lockkeeper/jepsen/locklab/lock"
	"lockkeeper/jepsen/locklab/ways/etcd"
	"lockkeeper/jepsen/locklab/ways/keeper"
	"lockkeeper/jepsen/locklab/ways/redis"
	"lockkeeper/jepsen/locklab/ways/sql"
)

// All are all ways to lock, in the order of tables; twins with planted bugs among them.
func All() []lock.Way {
	return slices.Concat(sql.Ways(), redis.Ways(), etcd.Ways(), keeper.Ways())
}
