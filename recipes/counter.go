package recipes

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"
)

// CounterFormat is how a Counter's value is written into its node.
type CounterFormat int

const (
	// Decimal is text, as kazoo's Counter writes it ("-12"). No data at all
	// stand for 0.
	Decimal CounterFormat = iota

	// AtomicLong is 8 bytes, the most significant first, as Curator's
	// DistributedAtomicLong has it.
	AtomicLong

	// SharedCount is 4 bytes, the most significant first, as Curator's
	// SharedCount and kazoo's Counter with support_curator have it. It holds
	// values of 32 bits.
	SharedCount
)

// Errors of a Counter.
var (
	// ErrOverflow: the value does not fit into the counter's format. It is not
	// changed.
	ErrOverflow = errors.New("recipes: counter overflow")

	// ErrFormat: the node's data is no number in the counter's format.
	ErrFormat = errors.New("recipes: not a number of this format")
)

// Counter is a number that many programs change, kept in the data of one
// persistent node. Every change is made exactly once, also when its reply is
// lost (see OptimisticUpdate; with a lost session the error is ErrUnknown).
//
// Changes are optimistic: those that collide start over, so that with many
// programs that change it all the time a Counter gets slow, though one of them
// always gets on.
type Counter struct {
	s    *Session
	path string
	opts CounterOptions
}

// CounterOptions are the settings of a Counter. The zero value is good.
type CounterOptions struct {
	Format CounterFormat // Decimal, if it is not set
	ACL    []zk.ACL      // for nodes that are made; nil: that of Config
}

// NewCounter returns the counter on a path. The node is made by the first change;
// until then the value is 0.
func NewCounter(s *Session, path string, opts CounterOptions) *Counter {
	return &Counter{s: s, path: path, opts: opts}
}

// Get returns the value: all changes that were acknowledged to anybody before the
// call are in it.
func (c *Counter) Get(ctx context.Context) (int64, error) {
	v, err := c.get(ctx)
	if err != nil {
		return 0, fmt.Errorf("recipes: counter %s: %w", c.path, err)
	}
	return v, nil
}

func (c *Counter) get(ctx context.Context) (int64, error) {
	_, err := call(ctx, c.s, func(ctx context.Context) (struct{}, error) {
		l, err := c.s.ready(ctx)
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, c.s.catchUp(ctx, l)
	}, nil)
	if err != nil {
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

// Set sets the value, whatever it was, and returns what it was.
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

// decode reads a value. No data are 0: a node that was made as somebody's parent,
// or by kazoo before its first change.
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
