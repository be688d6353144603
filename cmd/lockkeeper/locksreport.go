package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"lockkeeper/locknode"
	"lockkeeper/recipes"
)

// queuesReport is what is read of the report queues (docs/api.md).
type queuesReport struct {
	Locks []struct {
		Lock struct {
			Path string `json:"path"`
		} `json:"lock"`
		Offset int                 `json:"offset"`
		Queue  []reportedContender `json:"queue"`
	} `json:"locks"`
	Next *struct {
		From   string `json:"from"`
		Offset int    `json:"offset"`
	} `json:"next"`
}

type reportedContender struct {
	Path       string        `json:"path"`
	Node       string        `json:"node"`
	Session    string        `json:"session"`
	Address    string        `json:"address"`
	Held       bool          `json:"held"`
	MayHold    bool          `json:"mayHold"`
	Mode       locknode.Kind `json:"mode"`
	Token      int64         `json:"token"`
	CreatedAt  time.Time     `json:"createdAt"`
	QueuedAt   time.Time     `json:"queuedAt"`
	SinceAt    *time.Time    `json:"sinceAt"`
	SinceExact bool          `json:"sinceExact"`
	Orphan     bool          `json:"orphan"`
	Deadlock   bool          `json:"deadlock"`
	Library    string        `json:"library"`
	Layout     string        `json:"layout"`
	MayIgnore  []string      `json:"mayIgnore"`
	Data       *struct {
		Base64 []byte `json:"base64"`
	} `json:"data"`
}

// reportedLocks reads the locks as reports of the server, which has them at hand: all of one moment
// if they fit into one report.
func (c *client) reportedLocks(ctx context.Context, root string) (lockList, error) {
	q := url.Values{}
	if root != "/" {
		q.Set("under", root)
	}
	list := lockList{}
	for {
		text, err := c.Report(ctx, "queues", q)
		if err != nil {
			return nil, err
		}
		var r queuesReport
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, fmt.Errorf("%w: %w", recipes.ErrNoReport, err)
		}
		for _, l := range r.Locks {
			if n := len(list); n == 0 || l.Offset == 0 || list[n-1].Path != l.Lock.Path {
				list = append(list, lockState{Path: l.Lock.Path})
			}
			state := &list[len(list)-1]
			for _, one := range l.Queue {
				state.Contenders = append(state.Contenders, one.contender())
			}
		}
		if r.Next == nil {
			return list, nil
		}
		q.Set("from", r.Next.From)
		q.Set("offset", strconv.Itoa(r.Next.Offset))
	}
}

func (r *reportedContender) contender() contender {
	var data []byte
	if r.Data != nil {
		data = r.Data.Base64
	}
	session, _ := strconv.ParseUint(r.Session, 0, 64) // it is the server's own
	one := locknode.New(r.Path, r.Node, int64(session), r.CreatedAt, r.Token, data)
	one.Queued, one.Kind, one.Held, one.MayHold = r.QueuedAt, r.Mode, r.Held, r.MayHold
	one.Orphan, one.Library, one.Layout = r.Orphan, r.Library, r.Layout
	if len(r.MayIgnore) > 0 {
		one.MayIgnore = r.MayIgnore
	}
	c := newContender(one)
	c.Address, c.Deadlock = r.Address, r.Deadlock
	if r.SinceAt != nil {
		c.Since, c.SinceExact = r.SinceAt, r.SinceExact
	}
	return c
}
