package offline

import (
	"cmp"

	"lockkeeper/quorum/store"
	"lockkeeper/server/zoocfg"
)

// ConvertLog converts the log of a stopped member to a kind, by default cfg.LogStore. The text
// names both logs. See store.Convert.
func ConvertLog(cfg zoocfg.Config, to string) (string, error) {
	return store.Convert(cmp.Or(cfg.Data.LogDir, cfg.Data.Dir, zoocfg.DefaultDataDir),
		cmp.Or(store.LogKind(to), cfg.Data.LogStore))
}
