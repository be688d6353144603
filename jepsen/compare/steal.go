package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// stolenMax is which share of the CPU time that the machine wanted its host may have given to
	// others, for a measurement to count.
	stolenMax = 0.05
	// stolenTries is how often a step is taken at the most to find such a moment, and
	// stolenPatience for how long at the most another try is begun.
	stolenTries    = 6
	stolenPatience = time.Minute
)

// cpuTime is the processor time of the machine since its start, and the stolen time, in ticks.
type cpuTime struct{ had, stolen float64 }

// readCPUTime reads it from a file like /proc/stat: cpu, user, nice, system, idle, iowait, irq,
// softirq, steal, ...
func readCPUTime(file string) (t cpuTime, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return t, err
	}
	line, _, _ := strings.Cut(string(b), "\n")
	words := strings.Fields(line)
	if len(words) < 9 || words[0] != "cpu" {
		return t, fmt.Errorf("%s begins with %q", file, line)
	}
	for i, w := range words[1:9] {
		v, err := strconv.ParseFloat(w, 64)
		switch {
		case err != nil:
			return t, fmt.Errorf("%s begins with %q", file, line)
		case i == 7:
			t.stolen = v
		case i != 3 && i != 4: // neither idle nor iowait
			t.had += v
		}
	}
	return t, nil
}

// stolenSince is the stolen share, 0 to 1, of the wanted time between two looks.
func (t cpuTime) stolenSince(before cpuTime) float64 {
	had, stolen := t.had-before.had, t.stolen-before.stolen
	if had+stolen <= 0 {
		return 0
	}
	return stolen / (had + stolen)
}

// stolenText says how much was stolen during the measurements that count, and how many were
// repeated.
func stolenText(samples []sample) string {
	var shares []float64
	again := 0
	for _, s := range samples {
		shares = append(shares, 100*s.Stolen)
		again += s.Tries - 1
	}
	if len(shares) == 0 {
		return "nothing was measured"
	}
	slices.Sort(shares)
	return fmt.Sprintf("median %.1f %%, at most %.1f %%; of %d measurements %d more were dropped for it (over %.0f %%)",
		shares[len(shares)/2], shares[len(shares)-1], len(shares), again, 100*stolenMax)
}
