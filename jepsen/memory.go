package jepsen

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// Memory is how much of a process is in memory, by the kernel's account (proc(5), VmRSS and VmHWM).
type Memory struct {
	// ResidentBytes is what is in memory now, PeakBytes the most since the process started, or since
	// Member.ResetPeakMemory.
	ResidentBytes, PeakBytes int64
}

// errNotRunning says that a member has no process.
var errNotRunning = errors.New("it is not running")

// Memory says how much memory the member's process takes. Linux only.
func (m *Member) Memory() (Memory, error) {
	p, running := m.current()
	if !running {
		return Memory{}, fmt.Errorf("jepsen: memory of %s: %w", m, errNotRunning)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	if err != nil {
		return Memory{}, fmt.Errorf("jepsen: memory of %s: %w", m, err)
	}
	return parseMemory(string(status)), nil
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
	p, running := m.current()
	if !running {
		return fmt.Errorf("jepsen: memory of %s: %w", m, errNotRunning)
	}
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.pid), []byte("5"), 0); err != nil {
		return fmt.Errorf("jepsen: memory of %s: %w", m, err)
	}
	return nil
}
