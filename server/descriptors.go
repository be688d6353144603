package server

import (
	"fmt"
	"math"

	"lockkeeper/quorum/peer"
)

const (
	// fileDescriptorsForFiles are kept for the log, of which each segment is open, for snapshots, and for what the process has open from
	// the beginning. All limits of ports together leave them alone.
	fileDescriptorsForFiles = 128
	// descriptorsEachPeer are for the connections that a member itself opens to another one.
	descriptorsEachPeer = 16
	// clientsMin is how many clients a member must be able to have.
	clientsMin = 16
)

// descriptorPlan shares the file descriptors that the process may have among those who take them.
type descriptorPlan struct {
	limit int64 // of the process; 0 if there is none
	// clients, accepted from peers, opened to peers, of the HTTP port. 0 clients mean no limit.
	clients, peers, opened, http int
}

// planDescriptors shares the file descriptors of this process. What is left for clients may be negative, if there are too few.
func planDescriptors(cfg *Config) descriptorPlan {
	_, limit := fileDescriptors()
	return shareDescriptors(limit, cfg)
}

func shareDescriptors(limit int64, cfg *Config) descriptorPlan {
	p := descriptorPlan{peers: cfg.MaxPeerCnxns}
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
		p.opened = descriptorsEachPeer * max(len(cfg.Members)-1, 2)
	}
	if cfg.HTTPAddr != "" {
		p.http = cfg.HTTPConns + 1 // one more has been accepted, for which another one is about to be closed
	}
	if p.limit > 0 {
		p.clients = int(p.limit) - fileDescriptorsForFiles - p.peers - p.opened - p.http
	}
	return p
}

// forClients is how many clients there may be because of the limit; 0 means that there is none.
func (p descriptorPlan) forClients() int {
	if p.limit == 0 {
		return 0
	}
	return max(p.clients, clientsMin)
}

// check says what the limit of file descriptors is too low for: an error if the member cannot run with it, else a warning, or nothing.
func (p descriptorPlan) check(cfg *Config) (warning string, err error) {
	if p.limit == 0 {
		return "", nil
	}
	if p.clients < clientsMin {
		return "", fmt.Errorf("server: this process may have %d files and sockets open (ulimit -n, LimitNOFILE), and needs at least %d: %d for its log and files, %d for its peers, %d for HTTP, %d for clients",
			p.limit, int(p.limit)-p.clients+clientsMin, fileDescriptorsForFiles, p.peers+p.opened, p.http, clientsMin)
	}
	key, n := "maxCnxns", cfg.MaxCnxns
	if n <= p.clients {
		key, n = "maxClientCnxns", cfg.MaxClientCnxns
	}
	if n <= p.clients {
		return "", nil
	}
	return fmt.Sprintf("%s=%d cannot be reached: of the %d files and sockets that this process may have open (ulimit -n, LimitNOFILE) %d are left for clients",
		key, n, p.limit, p.clients), nil
}
