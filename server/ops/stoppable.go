package ops

import (
	"context"
	"time"

	"lockkeeper/quorum"
)

const (
	// stopAnswerKept is for how long an answer of the leader is given to others that ask the same.
	stopAnswerKept = 250 * time.Millisecond
	// StopPause is between two questions of those who wait.
	StopPause = 500 * time.Millisecond
)

// Stoppable says whether this member may be stopped now: GET /stoppable, the four-letter word mays.
type Stoppable struct {
	Member    uint8 `json:"member"`
	Stoppable bool  `json:"stoppable"`
	// Reason is why it may not be stopped. Hopeless says that waiting does not help.
	Reason   string `json:"reason,omitempty"`
	Hopeless bool   `json:"hopeless,omitempty"`
	// HoldsMs is for how long the member now counts as stopped, so that no other one is told the
	// same that the cluster cannot do without as well; 0 if that was not asked for.
	HoldsMs int64 `json:"holdsMs"`
	// Sessions is the number of sessions with clients at the member: they move.
	Sessions int `json:"sessions"`
}

// StopAnswers asks the leader whether a member may be stopped, and keeps its last answer.
type StopAnswers struct {
	member Member

	turn   chan struct{} // capacity 1: full while the fields below are used
	at     time.Time
	wish   quorum.StopWish
	answer quorum.StopAnswer
}

// NewStopAnswers returns the StopAnswers of a member.
func NewStopAnswers(m Member) *StopAnswers {
	return &StopAnswers{member: m, turn: make(chan struct{}, 1)}
}

// Ask completes an answer: see Member.Stoppable.
func (kept *StopAnswers) Ask(ctx context.Context, reserve bool, answer Stoppable) Stoppable {
	wish := quorum.StopLook
	if reserve {
		wish = quorum.StopAsk
	}
	select {
	case kept.turn <- struct{}{}:
		defer func() { <-kept.turn }()
	case <-ctx.Done():
		answer.Reason = "too many others ask"
		return answer
	}
	age := time.Since(kept.at)
	if kept.wish != wish || age >= stopAnswerKept {
		a, err := kept.member.Replica().MayStop(ctx, wish)
		if err != nil {
			answer.Reason = "the leader does not say: " + err.Error()
			return answer
		}
		kept.at, kept.wish, kept.answer, age = time.Now(), wish, a, 0
	}
	a := kept.answer
	answer.Stoppable, answer.Reason, answer.Hopeless = a.May, a.Why, a.Hopeless
	answer.HoldsMs = max(0, a.For-age).Milliseconds()
	return answer
}
