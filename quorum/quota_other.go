//go:build !unix

package quorum

import "errors"

var errQuota = errors.New("disk quota exceeded") // of nothing
