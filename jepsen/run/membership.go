package run

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"lockkeeper/jepsen"
)

// Changes of the membership. (jepsen.Op.F)
const (
	// FTransfer: the leadership is transferred to another member.
	FTransfer = "transfer"
	// FRemove, FAdd: a member is taken out, ended and emptied; it is a member again.
	FRemove = "remove"
	FAdd    = "add"
)

// memberNemeses act as operators.
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
	return []nemesis{
		{
			name: "transfer", help: "the leadership is transferred to another member",
			usable: onlyLockkeeper, rest: seconds(1, 5), plan: planTransfer,
		},
		members.nemesis("members", "a member is removed, ended, emptied, and added again", seconds(3, 6), seconds(1, 5),
			canReconfigure),
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

// clusterTool runs lockkeeper cluster. An error has its output.
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

// firstLine is the part that a terminal has room for.
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
