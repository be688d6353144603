package server

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"lockkeeper/quorum"
	"lockkeeper/server/secure"
	"lockkeeper/server/zoocfg"
)

// CheckFiles reports, as Faults, what is wrong with the files that a Config names: certificates,
// the secret of the cluster, and what is in the data directories. It opens no port, takes no lock
// and changes nothing, so a member may run with the same files.
func CheckFiles(cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	cfg = cfg.WithDefaults()
	cfg.Logger = slog.New(slog.DiscardHandler)
	s := &Server{cfg: cfg, log: cfg.Logger}
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
	add(checkZooKeeperData(&cfg))
	add(checkLostLog(&cfg))
	if cfg.SpeaksTLS() {
		_, err := s.readCertificates()
		add(err)
	}
	if cfg.Standalone() {
		return faults.Err()
	}
	if path := cfg.PeerSecretFile; path != "" {
		if _, _, err := readSecrets(path); err != nil {
			add(cfg.Fault("peer.secretFile", "%s: %v", path, err))
		}
	}
	if cfg.PeersSpeakTLS() {
		if _, err := secure.Open(cfg.PeerTLS); err != nil {
			add(s.tlsFaults(err))
		}
	}
	return faults.Err()
}

// readCertificates reads the certificates of the ports for clients and HTTP.
func (s *Server) readCertificates() (*secure.Keeper, error) {
	keeper, err := secure.Open(s.cfg.TLS)
	switch {
	case err != nil:
		return nil, s.tlsFaults(err)
	case !s.cfg.TLS.Enabled():
		return nil, s.cfg.Fault("tls.cert", "is not set: a port that speaks TLS needs a certificate")
	}
	return keeper, nil
}

// checkLostLog refuses directories that have snapshots and no log: the votes of the member were in
// the log, too.
func checkLostLog(cfg *Config) error {
	log := filepath.Join(cfg.DataLogDir, logFile)
	if _, err := os.Stat(log); !errors.Is(err, fs.ErrNotExist) {
		if err != nil {
			return fmt.Errorf("server: %w", err)
		}
		return nil
	}
	if list, err := os.ReadDir(filepath.Join(cfg.DataDir, snapshotsDir)); err == nil && len(list) > 0 {
		f := cfg.Fault("dataLogDir",
			"%s is missing although %s has snapshots: a member that has lost its log must not go on (was dataLogDir changed?)",
			log, cfg.DataDir)
		f.Err = quorum.ErrDamaged
		return f
	}
	return nil
}
