package server

import (
	"fmt"
	"math"

	"lockkeeper/quorum/peer"
)

const (
	// fileDescriptorsForFiles are kept for the log, of which each segment is open, for snapshots,
	// and for the files that the process opens at its start. The limits of all ports together do
	// not use them.
	fileDescriptorsForFiles = 128
	// descriptorsEachPeer are for the connections that a member itself opens to another one.
	descriptorsEachPeer = 16
	// clientsMin is the number of clients that a member must be able to have.
	clientsMin = 16
)

// descriptorPlan divides the file descriptors of the process among its uses.
type descriptorPlan struct {
	limit int64 // of the process; 0 if there is none
	// clients, accepted from peers, opened to peers, of the HTTP port and the port for
	// metrics. 0 clients mean no limit.
	clients, peers, opened, http int
}

// planDescriptors divides the file descriptors of this process. The share of clients is negative if
// there are too few.
func planDescriptors(cfg *Config) descriptorPlan {
	_, limit := fileDescriptors()
	return shareDescriptors(limit, cfg)
}

func shareDescriptors(limit int64, cfg *Config) descriptorPlan {
	p := descriptorPlan{peers: cfg.Cluster.MaxPeerCnxns}
	if limit > 0 && limit <= math.MaxInt32 {
		p.limit = limit
	}
	switch {
	case cfg.Standalone():
		p.peers = 0
	case p.peers == 0 && p.limit > 0:
		p.peers = min(peer.DefaultMaxConns, max(32, int(p.limit/8)))
	case p.peers == 0:
		p.peers = peer.DefaultMaxConns
	}
	if !cfg.Standalone() {
		p.opened = descriptorsEachPeer * max(len(cfg.Cluster.Members)-1, 2)
	}
	if cfg.HTTP.Addr != "" {
		p.http = cfg.HTTP.Conns + 1 // one is accepted before another is closed
	}
	if cfg.Metrics.Addr != "" {
		p.http += cfg.HTTP.Conns + 1
	}
	if p.limit > 0 {
		p.clients = int(p.limit) - fileDescriptorsForFiles - p.peers - p.opened - p.http
	}
	return p
}

// forClients is the number of clients that the limit permits; 0 means no limit.
func (p descriptorPlan) forClients() int {
	if p.limit == 0 {
		return 0
	}
	return max(p.clients, clientsMin)
}

// check returns an error if the member cannot run with its limit of file descriptors, or a warning
// if the limit is lower than a setting.
func (p descriptorPlan) check(cfg *Config) (warning string, err error) {
	if p.limit == 0 {
		return "", nil
	}
	if p.clients < clientsMin {
		return "", fmt.Errorf("server: this process may have %d files and sockets open (ulimit -n, LimitNOFILE), "+
			"and needs at least %d: %d for its log and files, %d for its peers, %d for HTTP, %d for clients",
			p.limit, int(p.limit)-p.clients+clientsMin, fileDescriptorsForFiles, p.peers+p.opened, p.http, clientsMin)
	}
	key, n := "maxCnxns", cfg.Client.MaxCnxns
	if n <= p.clients || n == cfg.DefaultCnxns() {
		key, n = "maxClientCnxns", cfg.Client.MaxCnxnsPerAddr
	}
	if n <= p.clients {
		return "", nil
	}
	return fmt.Sprintf("%s=%d cannot be reached: of the %d files and sockets that this process may have open "+
		"(ulimit -n, LimitNOFILE) %d are left for clients",
		key, n, p.limit, p.clients), nil
}
