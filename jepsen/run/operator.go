package run

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/workload"
)

const (
	// askPause is between two questions of the operator.
	askPause = 400 * time.Millisecond
	// askPatience is how long an answer may take.
	askPatience = 8 * time.Second
)

// An operator asks lockkeeper's commands and probes about the cluster while it is broken, and notes
// their answers beside the facts: the acts of the nemeses.
type operator struct {
	f      *field
	rng    *rand.Rand
	clocks bool // are right
	asked  int64
}

func newOperator(f *field, t Test) *operator {
	return &operator{f: f, rng: random(t.Seed, workload.Operator), clocks: !t.asksFor("clock", "suspend")}
}

// run asks one question after the other until ctx ends.
func (o *operator) run(ctx context.Context) {
	questions := []func(context.Context) (jepsen.Op, question){o.status, o.ready, o.locks, o.stoppable}
	for i := 0; jepsen.Sleep(ctx, askPause); i++ {
		op, ask := questions[i%len(questions)](ctx)
		o.ask(ctx, op, ask)
	}
}

// A question fills in the answer.
type question func(ctx context.Context, s *workload.Statement) error

// facts is the truth at a moment.
type facts struct {
	effects map[*act]time.Duration
	calm    time.Duration
	isCalm  bool
}

func (o *operator) facts() (now facts) {
	now.calm, now.isCalm = o.f.planner.calmSince()
	o.f.mu.Lock()
	defer o.f.mu.Unlock()
	now.effects = make(map[*act]time.Duration)
	for a, since := range o.f.effects {
		now.effects[a] = since
	}
	return now
}

// truth is a state that held all the time between two moments, the first of them at asked.
func (o *operator) truth(before, after facts, asked time.Duration) workload.Truth {
	t := workload.Truth{Members: len(o.f.cluster.Members()), Clocks: o.clocks,
		Calm: before.isCalm && after.isCalm && before.calm == after.calm && asked-before.calm >= workload.StatementSettle}
	for a, since := range before.effects {
		if still, is := after.effects[a]; is && still == since && asked-since >= workload.StatementGrace {
			t.Down = append(t.Down, a.harm.down...)
			t.Blocked = append(t.Blocked, a.harm.cuts...)
		}
	}
	slices.Sort(t.Down)
	t.Down = slices.Compact(t.Down)
	return t
}

// ask asks a question and puts it into the history with its answer.
func (o *operator) ask(ctx context.Context, op jepsen.Op, q question) {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	o.asked++
	op.Worker, op.ID, op.Kind = workload.Worker(workload.Operator, 0), o.asked, jepsen.Invoke
	before, asked := o.facts(), o.f.now()
	o.f.history.Add(op)
	var s workload.Statement
	err := q(ctx, &s)
	s.Truth = o.truth(before, o.facts(), asked)
	op.Kind = jepsen.OK
	if err != nil {
		op.Kind, op.Note = jepsen.Fail, firstLine(err)
	}
	text, err := json.Marshal(s)
	if err != nil {
		op.Kind, op.Note = jepsen.Fail, err.Error()
	}
	op.Value = string(text)
	o.f.history.Add(op)
}

// tool runs lockkeeper with some arguments. Its output counts whatever its status is.
func (o *operator) tool(ctx context.Context, args ...string) ([]byte, error) {
	cmd := o.f.target.Tool(append(args, "-json", "-servers", o.f.cluster.Servers())...)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	err := cmd.Start()
	if err == nil {
		stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
		err = cmd.Wait()
		stop()
	}
	var status *exec.ExitError
	if err != nil && (!errors.As(err, &status) || out.Len() == 0) {
		return nil, fmt.Errorf("run: lockkeeper %s: %w: %s", args[0], err, strings.TrimSpace(complaint.String()))
	}
	return out.Bytes(), nil
}

func (o *operator) status(context.Context) (jepsen.Op, question) {
	return jepsen.Op{F: workload.FAskStatus}, func(ctx context.Context, s *workload.Statement) error {
		text, err := o.tool(ctx, "status")
		if err != nil {
			return err
		}
		s.Status = new(workload.StatusSays)
		return json.Unmarshal(text, s.Status)
	}
}

func (o *operator) locks(context.Context) (jepsen.Op, question) {
	return jepsen.Op{F: workload.FAskLocks}, func(ctx context.Context, s *workload.Statement) error {
		text, err := o.tool(ctx, "locks")
		if err != nil {
			return err
		}
		now := time.Now()
		for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
			var lock struct {
				Path       string
				Contenders []struct {
					Token      int64
					Held       bool
					Since      time.Time
					SinceExact bool
				}
			}
			if err := json.Unmarshal(lines.Bytes(), &lock); err != nil {
				return err
			}
			for _, c := range lock.Contenders {
				if !c.Held {
					continue
				}
				holder := workload.HolderSays{Lock: lock.Path, Token: c.Token}
				if c.SinceExact {
					holder.Held = now.Sub(c.Since)
				}
				s.Holders = append(s.Holders, holder)
			}
		}
		return nil
	}
}

// anyMember is one member, as often as any other.
func (o *operator) anyMember() *jepsen.Member {
	all := o.f.cluster.Members()
	return all[o.rng.IntN(len(all))]
}

// probe asks a member over HTTP. A member that does not answer has said nothing.
func (o *operator) probe(ctx context.Context, m *jepsen.Member, path string, s *workload.Statement) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.HTTPAddr+path, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 4<<10))
	s.About, s.Yes = m.ID, answer.StatusCode == http.StatusOK
	if !s.Yes {
		s.Why = strings.TrimSpace(string(text))
	}
	return err
}

func (o *operator) ready(context.Context) (jepsen.Op, question) {
	m := o.anyMember()
	return jepsen.Op{F: workload.FAskReady, Member: m.ClientAddr}, func(ctx context.Context, s *workload.Statement) error {
		if err := o.probe(ctx, m, "/ready", s); err != nil || !s.Yes {
			return err
		}
		text, err := jepsen.FourLetter(ctx, m.ClientAddr, "srvr")
		if err != nil {
			return err
		}
		_, zxid, _ := strings.Cut(text, "Zxid: 0x")
		zxid, _, _ = strings.Cut(zxid, "\n")
		s.Zxid, err = strconv.ParseInt(zxid, 16, 64)
		return err
	}
}

func (o *operator) stoppable(context.Context) (jepsen.Op, question) {
	m := o.anyMember()
	return jepsen.Op{F: workload.FAskStoppable, Member: m.ClientAddr}, func(ctx context.Context, s *workload.Statement) error {
		return o.probe(ctx, m, "/stoppable?reserve=false", s)
	}
}
