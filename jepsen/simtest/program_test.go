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
	stores, err := store.OpenOn(disk.Files(), segmentBytes, disk, verified{disk, m})
	if err != nil {
		return nil, err
	}
	for _, what := range stores.Repaired {
		m.c.journal.printf("m%d %s", m.id, what)
		m.c.repaired.Add(1)
	}
	shape := m.c.shape
	cfg := server.Config{MaxMemory: 1 << 30} // not the memory of this machine
	cfg.Client.Addr = m.clientAddr()
	if shape.http {
		cfg.HTTP.Addr = fmt.Sprintf("%s:%d", m.name, httpPort)
	}
	cfg.Sessions.TickTime = shape.tick
	cfg.Data.SnapCount = shape.snapCount
	cfg.Reap.ExtendedTypes, cfg.Reap.Interval = true, time.Second

	cfg.Cluster.ID, cfg.Cluster.Without = m.id, without
	cfg.Cluster.AnyPeerAddr, cfg.Cluster.SecretFile = shape.anyPeerAddr, shape.secretFile

	cfg.Machine.Listen = host.Listen
	cfg.Machine.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		return host.Dial(ctx, network, m.c.leads(addr))
	}
	cfg.Machine.Stores, cfg.Machine.Lost = &stores, m.aside
	cfg.Machine.TrailingEntries = shape.trailing // members that were away are to need snapshots
	cfg.Machine.Now, cfg.Machine.Clock, cfg.Machine.Yield = m.now, m.machine.clock(), m.machine.yield
	cfg.Cluster.Members = m.c.lines()
	if m.file != nil {
		cfg.Cluster.Members = m.file
	}
	if m.alone {
		cfg.Cluster.Members = nil
	}
	if m.c.shape.changes {
		cfg.Cluster.Reconfig, cfg.Auth.SuperDigest = true, superDigest
	}
	if m == m.c.spare {
		cfg.Cluster.Members = append(cfg.Cluster.Members, m.line(true))
	}
	recorder, err := m.c.explained.record(m, &stores, cfg.QuorumMembers())
	if err != nil {
		return nil, err
	}
	cfg.Machine.Recorder = recorder
	cfg.Logger = m.c.journal.logger(fmt.Sprintf("m%d", m.id),
		func() bool { return recorder.start == m.starts.Load() })
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
