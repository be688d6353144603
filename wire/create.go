package wire

// CreateRequest is the body of create, create2 and createContainer.
type CreateRequest struct {
	Path string
	Data []byte     // nil = null, which is stored and is not the same as empty
	ACL  []ACL      // nil = null
	Mode CreateMode // any number
}

// Append encodes r.
func (r CreateRequest) Append(b []byte) []byte {
	b = appendString(b, r.Path)
	b = appendBuffer(b, r.Data)
	b = appendACLs(b, r.ACL)
	return appendInt32(b, int32(r.Mode))
}

// Decode reads r from d. Data aliases the input.
func (r *CreateRequest) Decode(d *Decoder) {
	r.Path = d.Path()
	r.Data = d.Buffer()
	r.ACL = d.ACLs()
	r.Mode = CreateMode(d.Int32())
}

// CreateTTLRequest is the body of createTTL.
type CreateTTLRequest struct {
	Path string
	Data []byte // as in CreateRequest
	ACL  []ACL
	Mode CreateMode
	TTL  int64 // milliseconds; any number, sensible is 1..MaxTTLMs
}

// Append encodes r.
func (r CreateTTLRequest) Append(b []byte) []byte {
	b = CreateRequest{Path: r.Path, Data: r.Data, ACL: r.ACL, Mode: r.Mode}.Append(b)
	return appendInt64(b, r.TTL)
}

// Decode reads r from d. Data aliases the input.
func (r *CreateTTLRequest) Decode(d *Decoder) {
	var c CreateRequest
	c.Decode(d)
	*r = CreateTTLRequest{Path: c.Path, Data: c.Data, ACL: c.ACL, Mode: c.Mode, TTL: d.Int64()}
}

// CreateResponse answers create.
type CreateResponse struct {
	Path string // with the number appended to a sequential node
}

// Append encodes r.
func (r CreateResponse) Append(b []byte) []byte { return appendString(b, r.Path) }

// Decode reads r from d.
func (r *CreateResponse) Decode(d *Decoder) { r.Path = d.Path() }

// Create2Response answers create2, createContainer and createTTL.
type Create2Response struct {
	Path string
	Stat Stat
}

// Append encodes r.
func (r Create2Response) Append(b []byte) []byte { return r.Stat.Append(appendString(b, r.Path)) }

// Decode reads r from d.
func (r *Create2Response) Decode(d *Decoder) {
	r.Path = d.Path()
	r.Stat.Decode(d)
}

// CreateMode is the flags field of a create request, the kind of node to make. A request may carry
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

// MaxTTLMs is the longest time to live, in milliseconds, that CreateTTLRequest.TTL may have.
const MaxTTLMs = 1<<40 - 1
