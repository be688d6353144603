package fence

import (
	"errors"
	"fmt"
)

// Errors of this package. They come wrapped; compare with errors.Is.
var (
	// ErrStale: a larger token has been seen. It is a *StaleError.
	ErrStale = errors.New("fence: stale token")

	// ErrInvalid: a token below 1, which no lock has.
	ErrInvalid = errors.New("fence: not a token")

	// ErrDamaged: the remembered token cannot be read. Nothing is accepted until an operator has
	// looked at it.
	ErrDamaged = errors.New("fence: damaged")
)

// StaleError is the refusal of a token.
type StaleError struct {
	Resource string
	Token    int64 // that was refused
	Newest   int64 // the largest one seen
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("fence: token %d for %q is stale: %d has been seen", e.Token, e.Resource, e.Newest)
}

// Is makes the error an ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// check is the rule: it tells whether token is to be remembered.
func check(resource string, token, newest int64) (larger bool, err error) {
	switch {
	case token < 1:
		return false, fmt.Errorf("%w: %d for %q", ErrInvalid, token, resource)
	case token < newest:
		return false, &StaleError{resource, token, newest}
	}
	return token > newest, nil
}
