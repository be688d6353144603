package offline

import (
	"cmp"

	"lockkeeper/quorum"
	"lockkeeper/server/zoocfg"
)

// ConvertLog converts the log of a stopped member to a kind, that of cfg.LogStore if to is empty.
// The text says from where to where. See quorum.ConvertLog.
func ConvertLog(cfg zoocfg.Config, to string) (string, error) {
	return quorum.ConvertLog(cmp.Or(cfg.DataLogDir, cfg.DataDir, zoocfg.DefaultDataDir),
		cmp.Or(quorum.LogKind(to), cfg.LogStore))
}
