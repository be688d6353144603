package simtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"lockkeeper/internal/simdisk"
	"lockkeeper/quorum/store"
	"lockkeeper/server"
	"lockkeeper/znode"
)

// program is a running lockkeeper.
type program struct {
	*server.Server
	name string
	// mayFail: its disk has failed. mayRetire: its disk was harmed, so it may end because its files
	// must not be used any more.
	mayFail, mayRetire bool
}

// segmentBytes is the length of a segment of the log: short, so that there are many.
const segmentBytes = 64 << 10

// startProgram starts the member's server on a disk, on the present incarnation
// of the member's host.
func startProgram(m *member, disk *simdisk.Disk, without ...int) (*program, error) {
	host := m.c.net.Host(m.name)
	stores, err := store.OpenOn(disk.Files(), segmentBytes, disk, disk)
	if err != nil {
		return nil, err
	}
	stable := observeStable(stores.Stable, m)
	stores.Stable = stable
	stores.Log = observedLog{stores.Log, m, stable.start}
	for _, what := range stores.Repaired {
		m.c.journal.printf("m%d %s", m.id, what)
		m.c.repaired.Add(1)
	}
	cfg := server.Config{
		ClientAddr: m.clientAddr(),
		TickTime:   m.c.shape.tick,
		SnapCount:  m.c.shape.snapCount,
		// Members that were away are to need snapshots.
		TrailingEntries: m.c.shape.trailing,
		ID:              m.id,
		Logger:          m.c.journal.logger(fmt.Sprintf("m%d", m.id)),
		Listen:          host.Listen,
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return host.Dial(ctx, network, m.c.leads(addr))
		},
		AnyPeerAddr:    m.c.shape.anyPeerAddr,
		Stores:         &stores,
		Now:            m.now,
		Clock:          m.machine.clock(),
		Yield:          m.machine.yield,
		ObserveRaft:    stable.observe,
		ExtendedTypes:  true,
		ReapInterval:   time.Second,
		PeerSecretFile: m.c.shape.secretFile,
		MaxMemory:      1 << 30, // not this machine's
		Lost:           m.aside,
		Without:        without,
	}
	cfg.Members = m.c.lines()
	if m.file != nil {
		cfg.Members = m.file
	}
	if m.alone {
		cfg.Members = nil
	}
	if m.c.shape.changes {
		cfg.Reconfig, cfg.SuperDigest = true, superDigest
	}
	if m == m.c.spare {
		cfg.Members = append(cfg.Members, m.line(true))
	}
	s, err := server.Start(cfg)
	if err != nil {
		return nil, errors.Join(err, stores.Close())
	}
	return &program{Server: s, name: m.name}, nil
}

// leads is where a connection to an address leads.
func (c *cluster) leads(addr string) string {
	redirect := c.redirect.Load()
	if redirect == nil {
		return addr
	}
	for from, to := range *redirect {
		if port, is := strings.CutPrefix(addr, from+":"); is {
			return to + ":" + port
		}
	}
	return addr
}

// failure is why the program gave up, nil if it has not.
func (p *program) failure() error { return p.Err() }

func (p *program) leader() uint8 { return uint8(p.Status().Leader) }

func (p *program) view(f func(*znode.Store)) { p.View(f) }
