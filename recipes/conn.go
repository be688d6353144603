package recipes

import "github.com/go-zookeeper/zk"

// Conn is what this package needs of a ZooKeeper client. *zk.Conn satisfies it.
//
// The methods block for as long as the client has no connection, and may be
// carried out in a later session than the one in which they were called, as
// those of *zk.Conn do and are. SessionID and State must not block: they are
// called with a mutex held. After Close every call returns soon, with an error.
type Conn interface {
	Create(path string, data []byte, flags int32, acl []zk.ACL) (string, error)
	CreateContainer(path string, data []byte, flags int32, acl []zk.ACL) (string, error)
	Delete(path string, version int32) error
	Set(path string, data []byte, version int32) (*zk.Stat, error)
	Exists(path string) (bool, *zk.Stat, error)
	ExistsW(path string) (bool, *zk.Stat, <-chan zk.Event, error)
	Get(path string) ([]byte, *zk.Stat, error)
	GetW(path string) ([]byte, *zk.Stat, <-chan zk.Event, error)
	Children(path string) ([]string, *zk.Stat, error)
	ChildrenW(path string) ([]string, *zk.Stat, <-chan zk.Event, error)
	// Multi does all of ops (*zk.CreateRequest, *zk.SetDataRequest,
	// *zk.DeleteRequest, *zk.CheckVersionRequest) or, with an error, none. Without ops
	// it is a write that changes nothing.
	Multi(ops ...any) ([]zk.MultiResponse, error)
	// Sync returns the path of the answer, which may be another one; see confirm.go.
	Sync(path string) (string, error)

	SessionID() int64
	State() zk.State
	Close()
}

var _ Conn = (*zk.Conn)(nil)
