package offline

import (
	"errors"
	"log/slog"

	"lockkeeper/server/datadir"
	"lockkeeper/server/secure"
	"lockkeeper/server/zoocfg"
)

// CheckFiles reports, as Faults, the faults of the files that a Config names: certificates, the
// secret of the cluster, and the data directories. It opens no port, takes no lock and changes
// nothing, so a member may run with the same files.
func CheckFiles(cfg zoocfg.Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	cfg = cfg.WithDefaults()
	cfg.Logger = slog.New(slog.DiscardHandler)
	var faults zoocfg.Faults
	add := func(err error) {
		var more zoocfg.Faults
		var one zoocfg.Fault
		switch {
		case err == nil:
		case errors.As(err, &more):
			faults = append(faults, more...)
		case errors.As(err, &one):
			faults = append(faults, one)
		default:
			faults = append(faults, zoocfg.Fault{File: cfg.File, Key: "dataDir", Reason: err.Error(), Err: err})
		}
	}
	add(datadir.CheckZooKeeperData(&cfg))
	add(datadir.CheckLostLog(&cfg))
	if cfg.SpeaksTLS() {
		_, err := cfg.OpenTLS()
		add(err)
	}
	if cfg.Standalone() {
		return faults.Err()
	}
	if path := cfg.Cluster.SecretFile; path != "" {
		if _, _, err := secure.ReadSecrets(path); err != nil {
			add(cfg.Fault("peer.secretFile", "%s: %v", path, err))
		}
	}
	if cfg.PeersSpeakTLS() {
		_, err := cfg.OpenPeerTLS()
		add(err)
	}
	return faults.Err()
}
