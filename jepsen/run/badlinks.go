package run

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"lockkeeper/jepsen"
)

// FSlow, FLossy: what a member sends to others comes late, or not at the first
// try; FSmooth: it does not any more. (jepsen.Op.F)
const (
	FSlow   = "slow"
	FLossy  = "lossy"
	FSmooth = "smooth"
)

// linkNemeses make links bad.
func linkNemeses() []nemesis {
	return []nemesis{
		badLinks("slow", FSlow, "what some members send to others takes 20 to 400 ms", func(rng *rand.Rand) (jepsen.Shape, string) {
			delay := time.Duration(20+rng.IntN(280)) * time.Millisecond
			return jepsen.Shape{Delay: delay, Jitter: delay / 3}, fmt.Sprintf("%v ± %v", delay, (delay / 3).Round(time.Millisecond))
		}),
		badLinks("lossy", FLossy, "1 to 20 % of the packets that some members send to others are lost", func(rng *rand.Rand) (jepsen.Shape, string) {
			percent := 1 + rng.IntN(20)
			return jepsen.Shape{Loss: float64(percent) / 100}, fmt.Sprintf("%d %%", percent)
		}),
	}
}

func badLinks(name, f, help string, choose func(*rand.Rand) (jepsen.Shape, string)) nemesis {
	return nemesis{
		name: name, help: help, rest: seconds(2, 5), lasts: seconds(3, 12),
		usable: func(field *field) error {
			if err := hasLinks(field); err != nil {
				return err
			}
			if err := field.links.Shape(1, jepsen.Shape{Delay: time.Millisecond}); err != nil {
				return err
			}
			return field.links.Shape(1, jepsen.Shape{})
		},
		plan: func(_ context.Context, field *field, rng *rand.Rand) (*act, error) {
			hosts := shuffled(field, rng)[:1+rng.IntN(field.links.Size())]
			shape, what := choose(rng)
			var things []any
			for _, h := range hosts {
				things = append(things, fmt.Sprintf("link %d", h))
			}
			taken, release := field.claim(name, things)
			if len(taken) < len(hosts) {
				release()
				return nil, nil
			}
			set := func(shape jepsen.Shape) func(context.Context) error {
				return func(context.Context) error {
					var errs []error
					for _, h := range hosts {
						errs = append(errs, field.links.Shape(h, shape))
					}
					return errors.Join(errs...)
				}
			}
			on := members(hosts) + ", " + what
			return &act{
				on: on, begin: []jepsen.Op{{F: f, Note: on}}, end: []jepsen.Op{{F: FSmooth, Note: on}},
				start: set(shape), mend: set(jepsen.Shape{}), release: release,
				harm: harm{down: hosts}, // they act, but nobody can say how fast
			}, nil
		},
	}
}
