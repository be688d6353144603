package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockkeeper/jepsen"
)

// What is done to the membership. (jepsen.Op.F)
const (
	// FTransfer: the leadership is transferred to another member.
	FTransfer = "transfer"
	// FRemove, FAdd: a member is taken out, ended and emptied; it is a member again.
	FRemove = "remove"
	FAdd    = "add"
	// FDamage: a member was killed, and its log damaged. FAdd ends it.
	FDamage = "damage"
)

// memberNemeses do what operators do.
func memberNemeses() []nemesis {
	members := strike{
		began: FRemove, over: FAdd, choose: anyOne, forGood: true, mend: each(rebuild),
		start: each(func(ctx context.Context, f *field, m *jepsen.Member) error {
			if err := f.remove(ctx, m); err != nil {
				// Its outcome is unknown: rebuild finds out.
				f.say("remove refused", firstLine(err))
				return nil
			}
			return m.Kill()
		}),
	}
	torn := strike{
		began: FDamage, over: FAdd, choose: anyOne, forGood: true, mend: each(rebuild),
		start: each(func(ctx context.Context, f *field, m *jepsen.Member) error {
			if err := m.Kill(); err != nil {
				return err
			}
			if err := tearLog(filepath.Join(m.DataDir(), "raft.wal")); err != nil {
				return err
			}
			return f.mustRefuse(ctx, m)
		}),
	}
	return []nemesis{
		{
			name: "transfer", help: "the leadership is transferred to another member",
			usable: onlyLockkeeper, rest: seconds(1, 5), plan: planTransfer,
		},
		members.nemesis("members", "a member is removed, ended, emptied, and added again", seconds(3, 6), seconds(1, 5),
			canReconfigure),
		torn.nemesis("torn",
			"a member is killed and the end of its log torn: it must refuse to start, and is rebuilt as documented",
			seconds(3, 8), seconds(0, 3), canReconfigure),
	}
}

// canReconfigure says why members cannot be removed and added, if so.
func canReconfigure(f *field) error {
	if err := onlyLockkeeper(f); err != nil {
		return err
	}
	if _, proxies := f.links.(*jepsen.Proxies); proxies {
		return fmt.Errorf("%w: behind proxies the members have no addresses that all of them know", errUnusable)
	}
	if len(f.cluster.Members()) < 3 {
		return fmt.Errorf("%w: fewer than 3 members", errUnusable)
	}
	return nil
}

// toolPatience is how long one call of the operator's program may take.
const toolPatience = 20 * time.Second

// clusterTool runs lockkeeper cluster. An error has what it printed.
func (f *field) clusterTool(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, toolPatience+5*time.Second)
	defer cancel()
	cmd := f.target.Tool(append([]string{"cluster"}, args...)...)
	log := filepath.Join(f.scratch, fmt.Sprintf("tool%d.log", f.tools.Add(1)))
	defer os.Remove(log)
	return jepsen.Run(ctx, "lockkeeper cluster "+args[0], cmd, log)
}

// common are the flags of all calls of the operator's program.
func (f *field) common() []string {
	return []string{"-auth", jepsen.AdminAuth, "-timeout", toolPatience.String(), "-servers", f.cluster.Servers()}
}

// firstLine is what a terminal has room for.
func firstLine(err error) string {
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	return lines[len(lines)-1]
}

// planTransfer transfers the leadership. The member that gets the request may be cut off: a refusal
// is as good.
func planTransfer(ctx context.Context, f *field, rng *rand.Rand) (*act, error) {
	all := f.cluster.Members()
	to, asked := all[rng.IntN(len(all))], all[rng.IntN(len(all))]
	if leader := f.leader(ctx); leader != nil {
		asked = leader
	}
	return &act{
		on: "to " + to.String(), begin: []jepsen.Op{{F: FTransfer, Member: to.ClientAddr, Note: to.String()}},
		start: func(ctx context.Context) error {
			args := append([]string{"transfer-leader", "-http", asked.HTTPAddr}, f.common()...)
			if err := f.clusterTool(ctx, append(args, strconv.Itoa(to.ID))...); err != nil {
				f.say("transfer refused", firstLine(err))
			}
			return nil
		},
	}, nil
}

func (f *field) remove(ctx context.Context, m *jepsen.Member) error {
	return f.clusterTool(ctx, append([]string{"remove", strconv.Itoa(m.ID)}, f.common()...)...)
}

// rebuild brings a member back as the documentation says: it is removed, emptied, started, and
// added. Others may break things at that time: it is tried again until ctx ends.
func rebuild(ctx context.Context, f *field, m *jepsen.Member) error {
	err := jepsen.Poll(ctx, time.Second, func() error {
		err := f.remove(ctx, m)
		// The program says that there is none only after a sync.
		if err != nil && strings.Contains(err.Error(), fmt.Sprintf("there is no member %d", m.ID)) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("run: remove %s: %w", m, err)
	}
	if err := errors.Join(m.Kill(), m.Wipe(), m.Start()); err != nil {
		return err
	}
	err = jepsen.Poll(ctx, time.Second, func() error {
		return f.clusterTool(ctx, append([]string{"add", m.Line()}, f.common()...)...)
	})
	if err != nil {
		return fmt.Errorf("run: add %s: %w", m, err)
	}
	return nil
}

// refusePatience is how long a member may take to see that its log is damaged.
const refusePatience = 30 * time.Second

// mustRefuse starts a member that must not come up.
func (f *field) mustRefuse(ctx context.Context, m *jepsen.Member) error {
	if err := m.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, refusePatience)
	defer cancel()
	for m.Running() {
		if mode, err := m.Mode(ctx); err == nil {
			return fmt.Errorf("run: %s serves as %s on a damaged log", m, mode)
		}
		if !jepsen.Sleep(ctx, 20*time.Millisecond) {
			return nil // called off
		}
	}
	if log := m.LogTail(); !strings.Contains(log, "damaged") {
		return fmt.Errorf("run: %s did not say that its log is damaged:\n%s", m, log)
	}
	f.say("refuses to start", m.String()+": its log is damaged")
	return nil
}

// tornBytes is how much nonsense tearLog writes.
const tornBytes = 16

// tearLog writes nonsense over the end of what was written last: the newest segment in dir has
// zeros behind it.
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
