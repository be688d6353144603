package wire

// CreateMode is the flags field of a create request: what kind of node to make. A request may carry
// any number; Valid says whether it is one of the seven.
type CreateMode int32

// All modes of create.
const (
	ModePersistent              CreateMode = 0
	ModeEphemeral               CreateMode = 1
	ModePersistentSequential    CreateMode = 2
	ModeEphemeralSequential     CreateMode = 3
	ModeContainer               CreateMode = 4
	ModePersistentTTL           CreateMode = 5
	ModePersistentSequentialTTL CreateMode = 6
)

// Valid reports whether m is a mode of the protocol.
func (m CreateMode) Valid() bool { return m >= ModePersistent && m <= ModePersistentSequentialTTL }

// Ephemeral reports whether the node goes away with its session.
func (m CreateMode) Ephemeral() bool { return m == ModeEphemeral || m == ModeEphemeralSequential }

// Sequential reports whether the server appends a number to the path.
func (m CreateMode) Sequential() bool {
	return m == ModePersistentSequential || m == ModeEphemeralSequential || m == ModePersistentSequentialTTL
}

// Container reports whether the node is a container.
func (m CreateMode) Container() bool { return m == ModeContainer }

// TTL reports whether the node has a time to live.
func (m CreateMode) TTL() bool { return m == ModePersistentTTL || m == ModePersistentSequentialTTL }
