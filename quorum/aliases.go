package quorum

import "lockkeeper/quorum/store"

// The names of package store that are still used through this package.
type (
	Stores  = store.Stores
	Log     = store.Log
	Stable  = store.Stable
	LogKind = store.LogKind
)

const (
	LogWAL  = store.LogWAL
	LogBolt = store.LogBolt
)

var (
	ErrLogKind  = store.ErrLogKind
	ErrInUse    = store.ErrInUse
	ErrDamaged  = store.ErrDamaged
	ErrFormat   = store.ErrFormat
	ErrOutdated = store.ErrOutdated
	ErrDiskFull = store.ErrDiskFull

	OpenStores   = store.Open
	OpenStoresOn = store.OpenOn
	ConvertLog   = store.Convert
	SyncDir      = store.SyncDir
	IsStarved    = store.IsStarved
)
