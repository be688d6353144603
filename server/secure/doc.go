// Package secure makes crypto/tls configurations from settings as ZooKeeper has them: key stores
// and trust stores in PEM, PKCS12 and JKS, protocols and cipher suites by their Java names, client
// authentication, revocation lists. It opens no port, has no goroutine and knows no configuration
// file: server/zoocfg makes the Settings, and the owner of a Keeper decides when it looks whether
// its files have changed.
//
//	keeper, err := secure.Open(settings)       // reads the files; a *FileError names the key
//	tls.Server(conn, keeper.Server())           // or tls.Client(conn, keeper.Client(host))
//	changed, err := keeper.Reload()             // later, from one goroutine at a time
package secure
