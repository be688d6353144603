package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockkeeper/jepsen"
)

// FLoss, FHealed: a member was killed and its disk emptied or damaged; it has its data and its vote
// again, without an operator. (jepsen.Op.F)
const (
	FLoss   = "loss"
	FHealed = "healed"
)

// lossNemeses empty or damage one disk at a time.
func lossNemeses() []nemesis {
	kind := func(name, help string, damage func(m *jepsen.Member) error) nemesis {
		return strike{
			began: FLoss, over: FHealed, choose: whenAllSynced, forGood: true,
			start: each(func(_ context.Context, f *field, m *jepsen.Member) error {
				f.say(name, m.String())
				return errors.Join(m.Kill(), damage(m))
			}),
			mend: each(awaitHealed),
		}.nemesis(name, help, seconds(0.5, 2), seconds(0, 1), canHeal)
	}
	return oneOf("wipe", "a member loses its disk, in one of the following ways each time, and is started: "+
		"it must heal by itself",
		kind("wipe-disk", "a member is killed and its disk emptied", (*jepsen.Member).Wipe),
		kind("wipe-db", "a member is killed and a byte of its raft.db changed", func(m *jepsen.Member) error {
			return flip(filepath.Join(m.DataDir(), "raft.db"), boltMeta)
		}),
		kind("wipe-snapshot", "a member is killed and a byte of its snapshots changed; without one, its disk emptied",
			func(m *jepsen.Member) error {
				damaged, err := damageSnapshot(m.DataDir())
				if err == nil && !damaged {
					err = m.Wipe()
				}
				return err
			}),
		kind("torn", "a member is killed and the end of its log torn", func(m *jepsen.Member) error {
			return tearLog(filepath.Join(m.DataDir(), "raft.wal"))
		}),
	)
}

// canHeal says why a member cannot lose its disk, if so.
func canHeal(f *field) error {
	if err := onlyLockkeeper(f); err != nil {
		return err
	}
	if len(f.cluster.Members()) < 3 {
		return fmt.Errorf("%w: fewer than 3 members", errUnusable)
	}
	return nil
}

// whenAllSynced chooses any member if the leader says that all others vote and have caught up: then
// a majority without it has everything that was answered. Else it chooses none.
func whenAllSynced(ctx context.Context, f *field, rng *rand.Rand) ([]*jepsen.Member, int) {
	if f.allSynced(ctx) != nil {
		return nil, 0
	}
	return anyOne(ctx, f, rng)
}

// allSynced is an error unless the leader counts every member as a voter that has caught up.
func (f *field) allSynced(ctx context.Context) error {
	leader := f.leader(ctx)
	if leader == nil {
		return errors.New("run: no leader")
	}
	ctx, cancel := context.WithTimeout(ctx, leaderPatience)
	defer cancel()
	text, err := jepsen.FourLetter(ctx, leader.ClientAddr, "mntr")
	if err != nil {
		return err
	}
	n := len(f.cluster.Members())
	for name, want := range map[string]int{"zk_quorum_size": n, "zk_synced_followers": n - 1} {
		if got := gauge(text, name); got != strconv.Itoa(want) {
			return fmt.Errorf("run: %s says %s %q, want %d", leader, name, got, want)
		}
	}
	return nil
}

// gauge is a value in the answer to mntr; empty if there is none.
func gauge(mntr, name string) string {
	for line := range strings.Lines(mntr) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok && key == name {
			return value
		}
	}
	return ""
}

// healBound is how long a member may take, while a majority of the members can act without it,
// until it serves with its vote and has caught up.
const healBound = 60 * time.Second

// healPoll is how often a member is asked whether it has healed.
const healPoll = 50 * time.Millisecond

// awaitHealed starts a member that has lost its disk and waits until it is whole.
func awaitHealed(ctx context.Context, f *field, m *jepsen.Member) error {
	if err := m.Start(); err != nil {
		return err
	}
	for began, last, able := time.Now(), time.Now(), time.Duration(0); ; {
		err := f.healed(ctx, m)
		now := time.Now()
		if err == nil {
			f.say("healed", fmt.Sprintf("%s after %v", m, now.Sub(began).Round(time.Millisecond)))
			return nil
		}
		if f.planner.majority() {
			able += now.Sub(last)
		}
		last = now
		if able > healBound || !jepsen.Sleep(ctx, healPoll) {
			return fmt.Errorf("run: %s has not healed after %v, in %v of which a majority could act: %w\n%s", m,
				now.Sub(began), able, err, m.LogTail())
		}
	}
}

// healed is an error unless the member serves as a voter, and the leader counts all as synced.
func (f *field) healed(ctx context.Context, m *jepsen.Member) error {
	mode, err := m.Mode(ctx)
	if err != nil {
		return err
	}
	if mode != "leader" && mode != "follower" {
		return fmt.Errorf("run: %s is %s", m, mode)
	}
	return f.allSynced(ctx)
}

// boltMeta is an offset in the second meta page of a bbolt file, below its checksum.
const boltMeta = 4096 + 40

// flip inverts a byte of a file.
func flip(name string, offset int64) error {
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("run: damage: %w", err)
	}
	b := make([]byte, 1)
	if _, err = file.ReadAt(b, offset); err == nil {
		b[0] = ^b[0]
		_, err = file.WriteAt(b, offset)
	}
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("run: damage: %w", err)
	}
	return nil
}

// damageSnapshot inverts a byte in the middle of each file of the snapshots in a data directory. It
// reports whether there is one.
func damageSnapshot(dataDir string) (damaged bool, err error) {
	err = filepath.WalkDir(filepath.Join(dataDir, "snapshots"), func(name string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil || info.Size() == 0 {
			return err
		}
		damaged = true
		return flip(name, info.Size()/2)
	})
	return damaged, err
}

// tornBytes is how much nonsense tearLog writes.
const tornBytes = 16

// tearLog writes nonsense over the end of the last write: the newest segment in dir has zeros
// behind it.
func tearLog(dir string) error {
	segments, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(segments) == 0 {
		return fmt.Errorf("run: tear the log: no segments in %s (%v)", dir, err)
	}
	name := slices.Max(segments)
	content, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("run: tear the log: %w", err)
	}
	used := len(bytes.TrimRight(content, "\x00"))
	if used < tornBytes {
		return fmt.Errorf("run: tear the log: %s is empty", name)
	}
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("run: tear the log: %w", err)
	}
	torn := content[used-tornBytes : used]
	for i := range torn {
		torn[i] = ^torn[i]
	}
	_, err = file.WriteAt(torn, int64(used-tornBytes))
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("run: tear the log: %w", err)
	}
	return nil
}
