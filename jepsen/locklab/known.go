package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"lockkeeper/jepsen/locklab/judge"
	"lockkeeper/jepsen/locklab/lock"
	"lockkeeper/jepsen/locklab/play"
)

// known has the rounds of earlier runs, in a file with a line for each batch of a case, so that a
// run of hours can be called off and taken up again.
type known struct {
	path  string
	began time.Time
	mu    sync.Mutex
	all   map[knownKey]knownCase
	took  time.Duration // of all that were taken
}

// knownKey is a batch: rounds of a case, and the part of the command line that they depend on.
type knownKey struct {
	Way, Fault, Fences      string
	From, To, Rounds, Share int
	Seed                    uint64
	Lease                   time.Duration
}

type knownCase struct {
	knownKey
	System, Skipped string
	Took            time.Duration
	Figures         judge.Figures
}

// loadKnown reads the file, if there is one. Without a path nothing is known.
func loadKnown(path string) (*known, error) {
	k := &known{path: path, began: time.Now(), all: make(map[knownKey]knownCase)}
	if path == "" {
		return k, nil
	}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var c knownCase
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		k.all[c.knownKey] = c
	}
	return k, lines.Err()
}

func (o options) key(way, fault string, from, to int) knownKey {
	return knownKey{way, fault, o.fences, from, to, o.rounds, o.share, o.seed, o.lease}
}

// take returns a batch without its histories, if it is known.
func (k *known) take(way lock.Way, key knownKey) (judge.Result, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c, ok := k.all[key]
	if !ok {
		return judge.Result{}, false
	}
	k.took += c.Took
	f, _ := play.FindFault(key.Fault)
	return judge.Result{Way: way, Figures: c.Figures, Case: &play.Case{Way: key.Way, System: c.System, Fault: key.Fault,
		Seed: key.Seed, Lease: f.Lease(key.Lease), Skipped: c.Skipped, Requests: -1, InTurn: -1}}, true
}

// add appends a batch to the file. If more than a tenth of it could not be played, as on a machine
// that is too busy, another run plays it again.
func (k *known) add(key knownKey, r judge.Result, took time.Duration) error {
	if k.path == "" || 10*r.Figures.Broken > r.Figures.Rounds {
		return nil
	}
	line, err := json.Marshal(knownCase{key, r.Case.System, r.Case.Skipped, took, r.Figures})
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	file, err := os.OpenFile(k.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}
