package run

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"lockkeeper/jepsen"
)

// A machine watches how much of the processors the run got: on an overloaded machine clients and
// members are slow for a reason that is no fault of the run.
type machine struct {
	busy, total int64 // CPU time of the machine at the start, in ticks; 0 if it is not known
	latest      time.Duration
}

// machineInterval is how often the lateness of a timer is measured.
const machineInterval = 100 * time.Millisecond

func newMachine() *machine {
	m := &machine{}
	m.busy, m.total = cpuTicks()
	return m
}

// watch measures until ctx ends.
func (m *machine) watch(ctx context.Context) {
	for {
		began := time.Now()
		if !jepsen.Sleep(ctx, machineInterval) {
			return
		}
		m.latest = max(m.latest, time.Since(began)-machineInterval)
	}
}

// text is the result in words, when watch has ended.
func (m *machine) text() string {
	text := fmt.Sprintf("%d processors", runtime.NumCPU())
	if busy, total := cpuTicks(); total > m.total && m.total > 0 {
		text += fmt.Sprintf(", busy for %d %% of the time, with all that ran", 100*(busy-m.busy)/(total-m.total))
	}
	return text + fmt.Sprintf("; a timer of this process was late by up to %v", m.latest.Round(time.Millisecond))
}

// cpuTicks is the CPU time of the machine since it started, and the part of it that was not idle;
// zero where there is no /proc/stat.
func cpuTicks() (busy, total int64) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	return parseTicks(string(stat))
}

// parseTicks reads the first line of /proc/stat: cpu user nice system idle iowait irq softirq
// steal, and the time of guests, which user and nice have already.
func parseTicks(stat string) (busy, total int64) {
	line, _, _ := strings.Cut(stat, "\n")
	for i, field := range strings.Fields(strings.TrimPrefix(line, "cpu")) {
		ticks, _ := strconv.ParseInt(field, 10, 64)
		if i >= 8 {
			break
		}
		total += ticks
		if i != 3 && i != 4 {
			busy += ticks
		}
	}
	return busy, total
}
