package server

import (
	"cmp"

	"lockkeeper/quorum"
	"lockkeeper/server/zoocfg"
)

// ConvertLog moves the log of a stopped member into a kind, that of cfg.LogStore if to is empty, and says
// from where to where. See quorum.ConvertLog.
func ConvertLog(cfg Config, to string) (string, error) {
	return quorum.ConvertLog(cmp.Or(cfg.DataLogDir, cfg.DataDir, zoocfg.DefaultDataDir), cmp.Or(quorum.LogKind(to), cfg.LogStore))
}
