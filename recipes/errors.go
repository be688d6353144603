package recipes

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/go-zookeeper/zk"

	"lockkeeper/recipes/internal/sessionfile"
)

// Errors of this package. They come wrapped, with the path and the operation; compare with
// errors.Is.
var (
	// ErrLocked: TryLock found somebody in front. Nothing was left behind.
	ErrLocked = errors.New("recipes: locked by another")

	// ErrExpired: the cluster has ended the session that the lock, or the place in its queue,
	// belonged to. Both are gone for good: go-zookeeper goes on with a new session, which has no
	// claim to them. Lock again.
	ErrExpired = errors.New("recipes: session expired")

	// ErrSilent: the cluster has confirmed nothing for two thirds of the session timeout, or this
	// process did not run for so long. The session may still live, or may be about to end; the
	// holder can no longer know.
	ErrSilent = errors.New("recipes: nothing heard from the cluster for two thirds of the session timeout")

	// ErrDeleted: the lock node was deleted by somebody else.
	ErrDeleted = errors.New("recipes: lock node deleted by somebody else")

	// ErrReleased: Unlock was called.
	ErrReleased = errors.New("recipes: released")

	// ErrClosed: the Session was closed, or the connection under it; or a server has refused its
	// identity, which the error then wraps as zk.ErrAuthFailed.
	ErrClosed = errors.New("recipes: session closed")

	// ErrElsewhere: the session file is a copy, or was written on another machine, or in another
	// boot of this one. Its session may be in use there, and is left alone.
	ErrElsewhere = errors.New("recipes: the session file was written elsewhere")

	// ErrInUse: another process has the session file, or a process that it has started and passed
	// the file's lock on to.
	ErrInUse = sessionfile.ErrInUse

	// ErrDamaged: the session file is not as it was written.
	ErrDamaged = sessionfile.ErrDamaged

	// ErrExposed: others may read the session file, or it is another user's.
	ErrExposed = sessionfile.ErrExposed

	// ErrUnreachable: no address of the cluster can be connected to.
	ErrUnreachable = errors.New("recipes: no server can be connected to")

	// ErrTLSNeeded: a port speaks TLS, and Config.TLS is not set. It comes with ErrUnreachable, as
	// the three that follow.
	ErrTLSNeeded = errors.New("recipes: the port speaks TLS, and this program does not")

	// ErrNoTLS: a port does not speak TLS, and Config.TLS is set.
	ErrNoTLS = errors.New("recipes: the port does not speak TLS, and this program does")

	// ErrCertificateNeeded: a server refuses a program without a certificate.
	ErrCertificateNeeded = errors.New("recipes: the server refuses this program, which shows no certificate")

	// ErrHTTP: a port is one for HTTP.
	ErrHTTP = errors.New("recipes: the port is for HTTP, not for clients")

	// ErrLoginRequired: a server serves nobody who has not logged in with SASL, or shown another
	// identity that it requires. The Session has ended.
	ErrLoginRequired = errors.New("recipes: the server requires a login, with SASL or a certificate")

	// ErrOvertaken: the lock's node is there, but another one is in front of it, which the cluster
	// would not have put there by itself.
	ErrOvertaken = errors.New("recipes: another node is in front of the lock's")

	// ErrDelayed: TryLock found the lock free, but the last holder has vanished and its lock delay
	// is not over. It is an ErrLocked too.
	ErrDelayed = fmt.Errorf("%w, which has vanished, and whose lock delay is not over", ErrLocked)

	// ErrUpgrade: a reader that asks for the writer's lock is refused. Two that did so would wait
	// for each other to stop reading, for ever. Unlock, then lock for writing, and read again:
	// others may have written in between.
	ErrUpgrade = errors.New("recipes: a lock for reading cannot be upgraded: two readers that wait to do so " +
		"wait for each other for ever; unlock it, lock for writing, and read again")

	// ErrNotWriter: the grant is not one of an RWMutex for writing.
	ErrNotWriter = errors.New("recipes: not a lock for writing of an RWMutex")

	// ErrNoGuard: the grants of this recipe cannot guard operations.
	ErrNoGuard = errors.New("recipes: no guard: the lock's node has a name that others' have too")

	// ErrExhausted: the sequence counter of the path has reached 2147483647, where it stops or, on
	// ZooKeeper, may go on below zero, so that nodes can no longer be put in order by it. Delete
	// the path once nobody uses it; the counter starts again.
	ErrExhausted = errors.New("recipes: sequence numbers of the path are used up")

	// ErrUnknown: the operation ended, for the reason that is wrapped beside this, before it was
	// certain whether it has taken effect. It has, once, or has not, or will within moments, but
	// not later than the session's next write.
	ErrUnknown = errors.New("recipes: unknown whether it took effect")

	// ErrTaken: the name is in use by another member.
	ErrTaken = errors.New("recipes: name is taken")

	// ErrNoLeader: nobody leads.
	ErrNoLeader = errors.New("recipes: no leader")
)

// fate is the effect of a call, as far as its error tells.
type fate int

const (
	// fateDone: no error.
	fateDone fate = iota
	// fateRefused: the server said no. Nothing was changed.
	fateRefused
	// fateUnknown: the connection or the session broke. The request may have had its effect, once,
	// or not; asking again makes sense.
	fateUnknown
	// fateStrange: an error that this package does not know. The request may have had its effect;
	// asking again need not make sense.
	fateStrange
)

// refusals are the errors that are a server's (or go-zookeeper's own) no.
var refusals = []error{
	zk.ErrNoNode, zk.ErrNodeExists, zk.ErrNotEmpty, zk.ErrBadVersion, zk.ErrNoAuth,
	zk.ErrNoChildrenForEphemerals, zk.ErrInvalidACL, zk.ErrAuthFailed, zk.ErrAPIError,
	zk.ErrBadArguments, zk.ErrInvalidPath, zk.ErrInvalidFlags,
}

// unknowns are the errors after which the outcome is unknown. ErrNoServer is among them though the
// request was then never sent: nothing is gained by a special case.
var unknowns = []error{
	zk.ErrConnectionClosed, zk.ErrNoServer, zk.ErrSessionExpired, zk.ErrSessionMoved, zk.ErrClosing,
	io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, os.ErrDeadlineExceeded,
}

func fateOf(err error) fate {
	if err == nil {
		return fateDone
	}
	for _, e := range refusals {
		if errors.Is(err, e) {
			return fateRefused
		}
	}
	for _, e := range unknowns {
		if errors.Is(err, e) {
			return fateUnknown
		}
	}
	// go-zookeeper hands out the bare error of the socket when a write fails.
	if _, ok := errors.AsType[net.Error](err); ok {
		return fateUnknown
	}
	return fateStrange
}
