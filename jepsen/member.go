package jepsen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// probeTimeout bounds one question to a member; a member that does not answer within it counts as
// not serving.
const probeTimeout = 2 * time.Second

// A Member is one server of a cluster: a real process with its own directory, which is killed,
// paused and restarted as a machine would be. Its methods may be called from several goroutines.
type Member struct {
	// ID is its number in the configuration (myid), from 1.
	ID int
	// ClientAddr is where it serves clients, as 127.0.0.1:port.
	ClientAddr string
	// PeerAddr is where it serves its peers: raft's port for lockkeeper, the leader's for
	// ZooKeeper.
	PeerAddr string
	// HTTPAddr is where it answers over HTTP, with ClusterConfig.Admin.
	HTTPAddr string
	// MetricsAddr is where Prometheus finds its metrics, with ClusterConfig.Metrics.
	MetricsAddr string

	target Target
	dir    string
	disks  *Disks // nil: the data is in dir
	line   string // server.N=...
	clock  string // the file that sets its wall clock; empty: none
	sleeps string // the file with the time for which its machine was suspended; empty: none
	env    []string

	mu      sync.Mutex
	process *Process // the current or last process; nil before the first start
	asleep  time.Duration
	slept   time.Time // the newest Suspend
}

// String is the member's name in histories and logs, as m1.
func (m *Member) String() string { return fmt.Sprintf("m%d", m.ID) }

// Line is the member's server line, if it runs on the loopback.
func (m *Member) Line() string { return m.line }

// LogPath is the file that has everything the member printed, over all its restarts.
func (m *Member) LogPath() string { return filepath.Join(m.dir, "log") }

// DataDir is where this process finds the member's data directory.
func (m *Member) DataDir() string {
	data := filepath.Join(m.dir, "data")
	if m.disks != nil {
		return m.disks.Path(m.ID, data)
	}
	return data
}

// testClockEnv is lockkeeper's variable for the file with its clock's error.
const testClockEnv = "LOCKKEEPER_TEST_CLOCK"

// SetClock has the member's wall clock be wrong by d from now on. The cluster must have been
// started with ClusterConfig.TestClocks.
func (m *Member) SetClock(d time.Duration) error {
	if m.clock == "" {
		return fmt.Errorf("jepsen: set the clock of %s: it has none of its own", m)
	}
	if err := replaceFile(m.clock, d.String()); err != nil {
		return fmt.Errorf("jepsen: set the clock of %s: %w", m, err)
	}
	return nil
}

// replaceFile writes a file that is read at any time: its reader finds the old one or the new one.
func replaceFile(name, text string) error {
	fresh := name + ".new"
	if err := os.WriteFile(fresh, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, name)
}

// testSuspendsEnv is lockkeeper's variable for the file with the time for which its machine was
// suspended.
const testSuspendsEnv = "LOCKKEEPER_TEST_SUSPENDS"

// Suspend suspends the member's machine: the process stands still, and its monotonic clock with it.
// The cluster must have been started with ClusterConfig.TestClocks.
func (m *Member) Suspend(ctx context.Context) error {
	if m.sleeps == "" {
		return fmt.Errorf("jepsen: suspend %s: it has no clock of its own", m)
	}
	if err := m.Pause(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.slept = time.Now()
	return nil
}

// Wake ends a Suspend. Only the clock that counts suspends shows how long it was.
func (m *Member) Wake() error {
	m.mu.Lock()
	// Less than the process stood still: its other clock must not go back.
	if !m.slept.IsZero() {
		m.asleep += time.Since(m.slept)
		m.slept = time.Time{}
	}
	asleep := m.asleep
	m.mu.Unlock()
	if err := replaceFile(m.sleeps, asleep.String()); err != nil {
		return fmt.Errorf("jepsen: wake %s: %w", m, err)
	}
	return m.Resume()
}

// Wipe removes the member's data, apart from its number. It must not be running. Started again it
// is another server; a cluster that does not heal by itself must have removed it before.
func (m *Member) Wipe() error {
	entries, err := os.ReadDir(m.DataDir())
	for _, e := range entries {
		if e.Name() != "myid" && e.Name() != "lost+found" {
			err = errors.Join(err, os.RemoveAll(filepath.Join(m.DataDir(), e.Name())))
		}
	}
	if err != nil {
		return fmt.Errorf("jepsen: wipe %s: %w", m, err)
	}
	return nil
}

// Use makes another program the one that the next Start runs, on the same data. Only for a member
// of a cluster without Places, Disks and a limit of Descriptors.
func (m *Member) Use(t Target) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.target = t
}

// Running says whether the member's process has been started and not ended.
func (m *Member) Running() bool {
	_, running := m.current()
	return running
}

// Start starts the member's process and does not wait until it serves. Starting a running member is
// an error.
func (m *Member) Start() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process != nil && m.process.Running() {
		return fmt.Errorf("jepsen: start %s: it is running", m)
	}
	cmd := m.target.command(filepath.Join(m.dir, "zoo.cfg"))
	cmd.Env = append(os.Environ(), m.env...)
	if m.clock != "" {
		cmd.Env = append(cmd.Env, testClockEnv+"="+m.clock, testSuspendsEnv+"="+m.sleeps)
	}
	p, err := StartProcess(m.String(), cmd, m.LogPath())
	if err != nil {
		return err
	}
	m.process = p
	return nil
}

// Command is the command line that starts the member, for programs that start it themselves.
func (m *Member) Command() []string {
	return m.target.command(filepath.Join(m.dir, "zoo.cfg")).Args
}

// current is the member's process, and whether it runs.
func (m *Member) current() (*Process, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.process, m.process != nil && m.process.Running()
}

// running is the member's process, or an error.
func (m *Member) running(what string) (*Process, error) {
	p, running := m.current()
	if !running {
		return nil, fmt.Errorf("jepsen: %s %s: %w", what, m, errNotRunning)
	}
	return p, nil
}

// Kill ends the member as kill -9 does and returns when its process has gone.
func (m *Member) Kill() error {
	if p, running := m.current(); running {
		return p.Kill()
	}
	return nil
}

// Stop ends the member with SIGTERM and waits for it until ctx ends.
func (m *Member) Stop(ctx context.Context) error {
	if p, running := m.current(); running {
		return p.Stop(ctx)
	}
	return nil
}

// Restart starts the member again on the same data and waits until it serves.
func (m *Member) Restart(ctx context.Context) error {
	if err := m.Start(); err != nil {
		return err
	}
	return m.AwaitServing(ctx)
}

// Pause stops the member with SIGSTOP: its sockets stay open and nothing answers.
func (m *Member) Pause(ctx context.Context) error {
	p, err := m.running("pause")
	if err != nil {
		return err
	}
	return p.Pause(ctx)
}

// Resume lets a paused member go on.
func (m *Member) Resume() error {
	p, err := m.running("resume")
	if err != nil {
		return err
	}
	return p.Resume()
}

// Yield gives the member's process the lowest CPU priority, so that it takes CPU time from other
// processes about as little as if it had a machine of its own. Linux only.
func (m *Member) Yield() error {
	p, err := m.running("lower the priority of")
	if err != nil {
		return err
	}
	if err := yield(p.pid); err != nil {
		return fmt.Errorf("jepsen: lower the priority of %s: %w", m, err)
	}
	return nil
}

// Mode reads the member's role from srvr: leader, follower, observer or standalone. A member that
// serves no clients returns an error.
func (m *Member) Mode(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	answer, err := FourLetter(ctx, m.ClientAddr, "srvr")
	if err != nil {
		return "", err
	}
	return parseMode(answer)
}

// errExited ends the wait for a member after the end of its process.
var errExited = errors.New("exited")

// AwaitServing waits until the member serves clients. It returns early when the member's process
// ends.
func (m *Member) AwaitServing(ctx context.Context) error {
	var exited error
	err := Poll(ctx, 20*time.Millisecond, func() error {
		if p, running := m.current(); p == nil {
			exited = fmt.Errorf("jepsen: %s was never started", m)
			return nil
		} else if !running {
			exited = fmt.Errorf("%w: %w", errExited, p.ExitError())
			return nil
		}
		_, err := m.Mode(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("jepsen: %s does not serve: %w; the end of its log:\n%s", m, err, m.LogTail())
	}
	return exited
}

// LogTail is the end of the member's log, for the report of a failure.
func (m *Member) LogTail() string {
	p, _ := m.current()
	if p == nil {
		return "(never started)"
	}
	return p.LogTail(8 << 10)
}

// writeConfig makes the member's directory with its zoo.cfg and, in a cluster, its myid.
func (m *Member) writeConfig(text string, alone bool) error {
	data := filepath.Join(m.dir, "data")
	if err := os.MkdirAll(data, 0o755); err != nil {
		return fmt.Errorf("jepsen: configure %s: %w", m, err)
	}
	if err := os.WriteFile(filepath.Join(m.dir, "zoo.cfg"), []byte(text), 0o644); err != nil {
		return fmt.Errorf("jepsen: configure %s: %w", m, err)
	}
	if m.disks != nil {
		if err := m.disks.mount(m.ID, data); err != nil {
			return fmt.Errorf("jepsen: configure %s: %w", m, err)
		}
	}
	if alone {
		return nil
	}
	if err := writeSynced(filepath.Join(m.DataDir(), "myid"), fmt.Sprintf("%d\n", m.ID)); err != nil {
		return fmt.Errorf("jepsen: configure %s: %w", m, err)
	}
	return nil
}

// writeSynced writes a file that is there also after a loss of power.
func writeSynced(name, text string) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Sync(), file.Close())
}

// Memory is how much of a process is in memory, by the kernel's account (proc(5), VmRSS and VmHWM).
type Memory struct {
	// ResidentBytes is the resident memory now, PeakBytes the most since the process started, or
	// since Member.ResetPeakMemory.
	ResidentBytes, PeakBytes int64
}

// errNotRunning says that a member has no process.
var errNotRunning = errors.New("it is not running")

// Memory says how much memory the member's process takes. Linux only.
func (m *Member) Memory() (Memory, error) {
	p, err := m.running("memory of")
	if err != nil {
		return Memory{}, err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	if err != nil {
		return Memory{}, fmt.Errorf("jepsen: memory of %s: %w", m, err)
	}
	return parseMemory(string(status)), nil
}

// CPU is the CPU time of the member's process, user and system, since it started. Linux only.
func (m *Member) CPU() (time.Duration, error) {
	p, err := m.running("CPU of")
	if err != nil {
		return 0, err
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	if err != nil {
		return 0, fmt.Errorf("jepsen: CPU of %s: %w", m, err)
	}
	// Behind the name, which is in parentheses: state, ten numbers, utime, stime, in 1/100 s.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	var ticks time.Duration
	for _, field := range fields[11:13] {
		n, err := strconv.Atoi(field)
		if err != nil {
			return 0, fmt.Errorf("jepsen: CPU of %s: %w", m, err)
		}
		ticks += time.Duration(n)
	}
	return ticks * 10 * time.Millisecond, nil
}

// parseMemory reads /proc/PID/status. A process that is ending has no such lines.
func parseMemory(status string) (found Memory) {
	for line := range strings.Lines(status) {
		var kilobytes int64
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kilobytes); n == 1 {
			found.ResidentBytes = kilobytes << 10
		}
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kilobytes); n == 1 {
			found.PeakBytes = kilobytes << 10
		}
	}
	return found
}

// ResetPeakMemory has Memory tell the peak from now on. Linux only.
func (m *Member) ResetPeakMemory() error {
	p, err := m.running("memory of")
	if err != nil {
		return err
	}
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.pid), []byte("5"), 0); err != nil {
		return fmt.Errorf("jepsen: memory of %s: %w", m, err)
	}
	return nil
}

// FourLetter sends a four-letter word (srvr, mntr, ...) to a client port and returns the whole
// answer.
func FourLetter(ctx context.Context, addr, word string) (string, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", fmt.Errorf("jepsen: %s: %w", word, err)
	}
	defer conn.Close()
	// A member that is paused accepts and never answers.
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	if _, err := io.WriteString(conn, word); err != nil {
		return "", fmt.Errorf("jepsen: %s: %w", word, err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return "", fmt.Errorf("jepsen: %s: %w", word, err)
	}
	return string(answer), nil
}

// errNotServing says that a member answers four-letter words but serves no clients: it has no
// quorum, or is still starting.
var errNotServing = errors.New("not serving")

// parseMode finds the role in the answer to srvr: leader, follower, observer or standalone.
func parseMode(srvr string) (string, error) {
	for line := range strings.Lines(srvr) {
		if mode, ok := strings.CutPrefix(line, "Mode: "); ok {
			return strings.TrimSpace(mode), nil
		}
	}
	return "", fmt.Errorf("%w: srvr answered %q", errNotServing, strings.TrimSpace(srvr))
}
