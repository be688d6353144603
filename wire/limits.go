package wire

const (
	// DefaultMaxBuffer is the default of jute.maxbuffer: the most bytes a client's frame may have,
	// not counting its 4 length bytes. A frame of exactly this size is accepted. Replies have no
	// limit.
	DefaultMaxBuffer = 0xFFFFF

	// PasswordLen is the number of bytes of the session password in every ConnectResponse. A client
	// may send any number.
	PasswordLen = 16

	// MaxTTLMs is the longest time to live, in milliseconds, that CreateTTLRequest.TTL may ask for.
	MaxTTLMs = 1<<40 - 1

	// StatLen is the number of bytes of an encoded Stat.
	StatLen = 68
)
