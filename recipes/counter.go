package recipes

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

// CounterFormat is how a Counter's value is written into its node.
type CounterFormat int

const (
	// Decimal is text, as kazoo's Counter writes it ("-12"). No data at all stand for 0.
	Decimal CounterFormat = iota

	// AtomicLong is 8 bytes, the most significant first, as Curator's DistributedAtomicLong has it.
	AtomicLong

	// SharedCount is 4 bytes, the most significant first, as Curator's SharedCount and kazoo's
	// Counter with support_curator have it. It holds values of 32 bits.
	SharedCount
)

// Errors of a Counter.
var (
	// ErrOverflow: the value does not fit into the counter's format. It is not changed.
	ErrOverflow = errors.New("recipes: counter overflow")

	// ErrFormat: the node's data is no number in the counter's format.
	ErrFormat = errors.New("recipes: not a number of this format")
)

// Counter is a number that many programs change, kept in the data of one persistent node. Every
// change is made exactly once, also when its reply is lost (see OptimisticUpdate; with a lost
// session the error is ErrUnknown).
//
// Changes are optimistic: those that collide start over, so that with many programs that change it
// all the time a Counter gets slow, though one of them always gets on.
type Counter struct {
	s    *Session
	path string
	opts CounterOptions
}

// CounterOptions are the settings of a Counter. The zero value is good.
type CounterOptions struct {
	Format CounterFormat // Decimal, if it is not set
	ACL    []zk.ACL      // for nodes that are made; nil: Config.ACL
}

// NewCounter returns the counter on a path. The node is made by the first change; until then the
// value is 0.
func NewCounter(s *Session, path string, opts CounterOptions) *Counter {
	return &Counter{s: s, path: path, opts: opts}
}

// Get returns the value: all changes that were acknowledged to anybody before the call are in it.
func (c *Counter) Get(ctx context.Context) (int64, error) {
	v, err := c.get(ctx)
	if err != nil {
		return 0, fmt.Errorf("recipes: counter %s: %w", c.path, err)
	}
	return v, nil
}

func (c *Counter) get(ctx context.Context) (int64, error) {
	if _, err := c.s.link.upToDate(ctx); err != nil {
		return 0, err
	}
	node, err := readNode(ctx, c.s, c.path)
	if err != nil {
		return 0, err
	}
	return c.opts.Format.decode(node.data)
}

// Add adds n, which may be negative, and returns the new value.
func (c *Counter) Add(ctx context.Context, n int64) (int64, error) {
	return c.change(ctx, func(old int64) (int64, error) {
		if n > 0 && old > math.MaxInt64-n || n < 0 && old < math.MinInt64-n {
			return 0, fmt.Errorf("%w: %d + %d", ErrOverflow, old, n)
		}
		return old + n, nil
	})
}

// Set sets the value, and returns the old one.
func (c *Counter) Set(ctx context.Context, value int64) (old int64, err error) {
	_, err = c.change(ctx, func(v int64) (int64, error) {
		old = v
		return value, nil
	})
	return old, err
}

var errDiffers = errors.New("another value")

// CompareAndSet sets the value to new if it is old, and reports whether it was.
func (c *Counter) CompareAndSet(ctx context.Context, old, new int64) (bool, error) {
	_, err := c.change(ctx, func(v int64) (int64, error) {
		if v != old {
			return 0, errDiffers
		}
		return new, nil
	})
	if errors.Is(err, errDiffers) {
		return false, nil
	}
	return err == nil, err
}

func (c *Counter) change(ctx context.Context, f func(int64) (int64, error)) (value int64, err error) {
	_, err = update(ctx, c.s, c.path, UpdateOptions{Create: true, ACL: c.opts.ACL}, func(data []byte) ([]byte, error) {
		old, err := c.opts.Format.decode(data)
		if err != nil {
			return nil, err
		}
		if value, err = f(old); err != nil {
			return nil, err
		}
		return c.opts.Format.encode(value)
	})
	if err != nil {
		return 0, fmt.Errorf("recipes: counter %s: %w", c.path, err)
	}
	return value, nil
}

func (f CounterFormat) encode(v int64) ([]byte, error) {
	switch f {
	case AtomicLong:
		return binary.BigEndian.AppendUint64(nil, uint64(v)), nil
	case SharedCount:
		if v != int64(int32(v)) {
			return nil, fmt.Errorf("%w: %d in 4 bytes", ErrOverflow, v)
		}
		return binary.BigEndian.AppendUint32(nil, uint32(v)), nil
	}
	return strconv.AppendInt(nil, v, 10), nil
}

// decode reads a value. No data are 0: a node that was made as somebody's parent, or by kazoo
// before its first change.
func (f CounterFormat) decode(data []byte) (int64, error) {
	switch {
	case len(data) == 0:
		return 0, nil
	case f == AtomicLong && len(data) == 8:
		return int64(binary.BigEndian.Uint64(data)), nil
	case f == SharedCount && len(data) == 4:
		return int64(int32(binary.BigEndian.Uint32(data))), nil
	case f == Decimal:
		if v, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64); err == nil {
			return v, nil
		}
	}
	return 0, fmt.Errorf("%w: %.40q", ErrFormat, data)
}

// UpdateOptions are the settings of an OptimisticUpdate. The zero value is good.
type UpdateOptions struct {
	// Create: a node that does not exist is made, persistent, with the parents it needs, as
	// containers. Without it the error is zk.ErrNoNode.
	Create bool

	// ACL is for nodes that are made. Nil stands for [Config].ACL.
	ACL []zk.ACL

	// TagDir is the path under which an ephemeral node stands while an update is under way, by
	// which a change with a lost reply is recognised. "" stands for the node itself, on which
	// CREATE and DELETE are needed then. It cannot be the node itself if that is ephemeral.
	TagDir string
}

// Updated is the result of an update.
type Updated struct {
	Old     []byte // the data before; nil if there was no node
	New     []byte // the data now
	Version int32  // of the node, after the update
}

// OptimisticUpdate changes the data of a node, without a lock: it reads them, has change make the
// new data from the old, and writes those if the node still has the version that was read; else it
// starts over, after a pause that grows. change may be called any number of times; it gets nil if
// there is no node (and UpdateOptions.Create is set), and an error that it returns is the end of
// it. It is called by the goroutine that called OptimisticUpdate.
//
// The update is made exactly once, or not at all. A lost reply does not make that uncertain: see
// the error ErrUnknown for when it is.
func OptimisticUpdate(ctx context.Context, s *Session, path string, opts UpdateOptions,
	change func(old []byte) ([]byte, error),
) (Updated, error) {
	u, err := update(ctx, s, path, opts, change)
	if err != nil {
		return Updated{}, fmt.Errorf("recipes: update %s: %w", path, err)
	}
	return u, nil
}

func update(ctx context.Context, s *Session, path string, opts UpdateOptions,
	change func([]byte) ([]byte, error),
) (Updated, error) {
	acl, tagDir := s.aclOr(opts.ACL), opts.TagDir
	if tagDir == "" {
		tagDir = path
	}
	for attempt := 0; ; attempt++ {
		if err := backOff(ctx, attempt); err != nil {
			return Updated{}, err
		}
		old, err := readNode(ctx, s, path)
		if err != nil {
			return Updated{}, err
		}
		if !old.exists && !opts.Create {
			return Updated{}, zk.ErrNoNode
		}
		data, err := change(old.data)
		if err != nil {
			return Updated{}, err
		}
		if data == nil {
			data = []byte{}
		}
		u := Updated{Old: old.data, New: data}
		var op any = &zk.CreateRequest{Path: path, Data: data, Acl: acl}
		if old.exists {
			op = &zk.SetDataRequest{Path: path, Data: data, Version: old.stat.Version}
			u.Version = old.stat.Version + 1
		}
		_, err = newCommit(s, tagDir, acl).run(ctx, op)
		switch {
		case err == nil:
			return u, nil
		case errors.Is(err, zk.ErrNoNode):
			// Deleted meanwhile, or a parent of the node or of the tag is missing.
			if err := makeParents(ctx, s, path, opts, tagDir, acl); err != nil {
				return Updated{}, err
			}
		case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNodeExists): // again
		default:
			return Updated{}, err
		}
	}
}

func makeParents(ctx context.Context, s *Session, path string, opts UpdateOptions, tagDir string, acl []zk.ACL) error {
	return s.link.do(ctx, func(ctx context.Context) error {
		if opts.Create {
			dir, _ := split(path)
			if err := s.link.makeDir(ctx, dir, acl); err != nil {
				return err
			}
		}
		if tagDir != path {
			return s.link.makeDir(ctx, tagDir, acl)
		}
		return nil
	})
}

// readNode reads a node's data, not older than the last change that the answering server has
// acknowledged before. (A stale read costs another attempt, no more.)
func readNode(ctx context.Context, s *Session, path string) (view, error) {
	return call(ctx, s.link, func(ctx context.Context) (v view, err error) {
		l, err := s.link.ready(ctx)
		if err != nil {
			return v, err
		}
		err = s.link.again(ctx, l, func() (err error) {
			v.data, v.stat, err = s.link.conn.Get(path)
			return err
		})
		if errors.Is(err, zk.ErrNoNode) {
			return view{}, nil
		}
		v.exists = true
		if v.data == nil {
			v.data = []byte{}
		}
		return v, err
	}, nil)
}

// Bounds of the pause between two attempts of an update.
const (
	minBackOff = time.Millisecond
	maxBackOff = 200 * time.Millisecond
)

// backOff pauses before an attempt, counted from 0, for a time that is drawn by lot, so that those
// who collided do not collide again.
func backOff(ctx context.Context, attempt int) error {
	if attempt == 0 {
		return ctx.Err()
	}
	t := time.NewTimer(rand.N(min(minBackOff<<min(attempt, 20), maxBackOff)))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
