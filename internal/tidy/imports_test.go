package tidy

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// imports is the import graph of the module: what each package imports, of
// this module and of others, apart from the standard library. Imports go
// downwards only. A new edge needs a new word here, and a reason.
const imports = `
	wire:
	znode:                 wire
	# Only what moves data from ZooKeeper and back knows its files.
	zkdata:                wire znode github.com/klauspost/compress/snappy

	quorum/codec:
	# The port between members knows no raft.
	quorum/peer:           znode quorum/codec internal/connlimit internal/loglimit
	quorum/raftnet:        znode quorum/codec quorum/peer internal/clock github.com/hashicorp/raft
	quorum/wal:            quorum/codec github.com/hashicorp/raft golang.org/x/sys/unix
	quorum/store:          quorum/wal github.com/hashicorp/raft golang.org/x/sys/unix
	                       github.com/hashicorp/go-hclog
	                       github.com/hashicorp/raft-boltdb/v2
	                       go.etcd.io/bbolt go.etcd.io/bbolt/errors
	quorum:                wire znode quorum/codec quorum/peer quorum/raftnet quorum/store internal/loglimit internal/histogram
	                       internal/clock
	                       github.com/hashicorp/raft
	                       github.com/hashicorp/go-hclog
	# The protocol, explored whole: it knows nothing of the code that carries it out.
	quorum/model:
	quorum/model/trace:    wire znode quorum/model quorum/peer quorum/raftnet quorum/store github.com/hashicorp/raft
	session/sasl:
	# What locks' nodes look like: for clients and servers.
	locknode:
	# Which requests of clients a member takes, and when: it knows no session.
	session/admission:     wire znode internal/loglimit internal/connlimit golang.org/x/sync/semaphore
	session:               wire znode session/sasl session/admission internal/loglimit internal/histogram internal/clock
	                       internal/connlimit
	                       golang.org/x/sync/semaphore

	server/secure/pemfile:
	server/secure:         server/secure/pemfile quorum/peer internal/connlimit internal/loglimit github.com/pavlo-v-chernykh/keystore-go/v4 software.sslmate.com/src/go-pkcs12
	server/secure/certs:   server/secure/pemfile
	server/zoocfg:         wire znode quorum quorum/peer quorum/store session session/admission session/sasl server/secure internal/clock
	server/datadir:        quorum/store server/zoocfg
	server/offline:        wire znode zkdata locknode quorum quorum/store server/zoocfg server/secure server/datadir
	# The pages that the console shows, and their HTML.
	docs:
	internal/manual:       github.com/yuin/goldmark github.com/yuin/goldmark/ast github.com/yuin/goldmark/extension
	                       github.com/yuin/goldmark/parser github.com/yuin/goldmark/renderer/html github.com/yuin/goldmark/text
	server/ops/console/web: docs internal/manual
	server/ops/audit:      wire session internal/loglimit
	server/ops/metrics:    internal/histogram github.com/prometheus/client_golang/prometheus
	                       github.com/prometheus/client_golang/prometheus/collectors
	                       github.com/prometheus/client_golang/prometheus/promhttp
	server/ops/door:       znode session internal/connlimit server/zoocfg server/ops/audit golang.org/x/sys/unix
	server/ops:            wire znode locknode quorum quorum/peer session server/zoocfg server/ops/audit server/ops/door server/ops/metrics
	                       internal/histogram
	# Locks over HTTP are clients of sessions, and nothing of theirs is on the client port.
	server/httplock:       wire znode locknode session internal/connlimit server/zoocfg server/ops server/ops/door
	# The surfaces know the member by ops.Member, and not each other.
	server/ops/words:      wire znode session server/ops server/ops/door
	server/ops/admin:      wire znode quorum session server/zoocfg server/ops server/ops/door
	server/ops/console:    wire znode locknode quorum server/ops server/ops/door server/ops/metrics
	server:                wire znode locknode quorum quorum/peer quorum/store session internal/connlimit golang.org/x/time/rate server/zoocfg server/datadir
	                       server/offline server/secure server/httplock server/ops
	                       server/ops/admin server/ops/audit server/ops/console server/ops/console/web server/ops/door server/ops/metrics
	                       server/ops/words internal/loglimit internal/histogram internal/clock
	                       quorum/model/trace golang.org/x/sys/unix
	jepsen/simtest:
	deploy:
	locktest:              server wire znode internal/gate internal/simnet
	bench:                 wire internal/zkconn internal/cputime golang.org/x/sys/unix
	jepsen/compare/floor:   wire
	jepsen/compare:         bench jepsen jepsen/compare/floor recipes wire internal/freeport internal/zkconn go.etcd.io/etcd/client/v3 go.etcd.io/etcd/client/v3/concurrency go.uber.org/zap
	cmd/lockkeeper:        server server/datadir server/offline server/ops server/ops/admin server/secure/certs server/zoocfg server/secure locknode recipes bench recipes/fence cmd/lockkeeper/internal/guard cmd/lockkeeper/internal/fenceproxy cmd/lockkeeper/internal/timerslack cmd/lockkeeper/internal/demo cmd/lockkeeper/internal/contexts internal/clock github.com/go-zookeeper/zk github.com/spf13/cobra golang.org/x/term
	cmd/lockkeeper/internal/guard: golang.org/x/sys/unix golang.org/x/term
	cmd/lockkeeper/internal/timerslack: golang.org/x/sys/unix
	cmd/lockkeeper/internal/fenceproxy: recipes/fence
	cmd/lockkeeper/internal/contexts:
	cmd/lockkeeper/internal/demo: server recipes internal/freeport internal/gate internal/simnet

	# The clients' side knows no package of the server.
	recipes:               locknode recipes/internal/sessionfile github.com/go-zookeeper/zk
	recipes/fence:         internal/durable golang.org/x/sys/windows
	recipes/internal/sessionfile: internal/durable locknode
	jepsen:                internal/freeport github.com/go-zookeeper/zk
	jepsen/console:
	jepsen/curator:
	jepsen/differ:
	jepsen/flaws:
	jepsen/kazoosuite:
	jepsen/clients:
	# Planted bugs: an overlay of the product.
	jepsen/mutant:
	jepsen/sim:            jepsen/mutant jepsen/workload
	jepsen/tlsclients:
	jepsen/verdicts:
	jepsen/zkcli:
	jepsen/workload:       jepsen wire internal/zkconn recipes recipes/fence github.com/go-zookeeper/zk github.com/anishathalye/porcupine
	jepsen/report:         jepsen jepsen/workload
	jepsen/attack:         wire session/sasl internal/zkconn jepsen jepsen/workload jepsen/report github.com/go-zookeeper/zk
	jepsen/run:            jepsen jepsen/workload jepsen/report recipes/fence jepsen/mutant github.com/go-zookeeper/zk
	# The lab holds reality against the very rule that the server has: quorum.Maj.
	jepsen/splitbrain:     jepsen jepsen/report jepsen/workload quorum github.com/go-zookeeper/zk
	cmd/jepsen:            jepsen jepsen/workload jepsen/report jepsen/run jepsen/sim jepsen/splitbrain jepsen/attack jepsen/mutant
	                       quorum/model quorum/model/trace
	jepsen/locklab/lock:
	jepsen/locklab/system: internal/freeport jepsen jepsen/locklab/lock github.com/go-sql-driver/mysql github.com/jackc/pgx/v5
	                       go.etcd.io/etcd/client/v3 go.uber.org/zap
	jepsen/locklab/ways/redis: jepsen/locklab/lock jepsen/locklab/system github.com/redis/go-redis/v9 github.com/go-redsync/redsync/v4
	                       github.com/go-redsync/redsync/v4/redis github.com/go-redsync/redsync/v4/redis/goredis/v9
	jepsen/locklab/ways/sql: jepsen/locklab/lock jepsen/locklab/system github.com/go-sql-driver/mysql github.com/jackc/pgx/v5
	jepsen/locklab/ways/etcd: jepsen/locklab/lock go.etcd.io/etcd/client/v3 go.etcd.io/etcd/client/v3/concurrency go.uber.org/zap
	jepsen/locklab/ways/keeper: jepsen jepsen/locklab/lock recipes recipes/fence github.com/go-zookeeper/zk
	jepsen/locklab/ways:   jepsen/locklab/lock jepsen/locklab/ways/redis jepsen/locklab/ways/sql jepsen/locklab/ways/etcd
	                       jepsen/locklab/ways/keeper
	jepsen/locklab/ledger: jepsen recipes/fence
	jepsen/locklab/fences:
	jepsen/locklab/store:  internal/s3test jepsen/locklab/lock jepsen/locklab/system recipes/fence github.com/redis/go-redis/v9
	                       github.com/go-sql-driver/mysql github.com/jackc/pgx/v5/stdlib modernc.org/sqlite
	jepsen/locklab/play:   jepsen jepsen/locklab/lock jepsen/locklab/system jepsen/locklab/ledger jepsen/locklab/store recipes/fence
	jepsen/locklab/judge:  jepsen/locklab/lock jepsen/locklab/ledger jepsen/locklab/play
	jepsen/locklab/page:   jepsen/report jepsen/locklab/lock jepsen/locklab/ledger jepsen/locklab/play jepsen/locklab/judge
	                       jepsen/locklab/store
	jepsen/locklab:        jepsen jepsen/report jepsen/locklab/lock jepsen/locklab/system jepsen/locklab/ways jepsen/locklab/play
	                       jepsen/locklab/judge jepsen/locklab/page jepsen/locklab/store
	jepsen/workers/gozk:   recipes github.com/go-zookeeper/zk

	internal/clock:        golang.org/x/sys/unix
	internal/durable:

	# What tests are made of knows nothing of what they test.
	internal/simnet:
	internal/gate:         internal/simnet
	internal/freeport:
	internal/cputime:       golang.org/x/sys/unix
	internal/loglimit:
	internal/connlimit:    golang.org/x/time/rate
	internal/histogram:
	internal/zkconn:       wire
	internal/testcert:
	internal/rafttest:     znode github.com/hashicorp/raft
	# The disk is below the log: it implements wal.FS.
	internal/simdisk:      quorum/wal github.com/hashicorp/raft
	internal/tidy:
	internal/release:      github.com/goreleaser/nfpm/v2 github.com/goreleaser/nfpm/v2/deb github.com/goreleaser/nfpm/v2/files
	                       github.com/goreleaser/nfpm/v2/rpm github.com/google/go-containerregistry/pkg/v1
	                       github.com/google/go-containerregistry/pkg/v1/empty github.com/google/go-containerregistry/pkg/v1/layout
	                       github.com/google/go-containerregistry/pkg/v1/mutate github.com/google/go-containerregistry/pkg/v1/tarball
	                       github.com/google/go-containerregistry/pkg/v1/types
	internal/s3test:
	jepsen/pages:
	jepsen/site:           internal/manual github.com/yuin/goldmark/ast
	jepsen/bench:
	deploy/check:
`

// testImports is what the tests of a package import beyond the package itself
// and what it imports anyway.
const testImports = `
	session:               internal/cputime
	deploy:                internal/freeport server/zoocfg
	internal/release:      github.com/google/go-containerregistry/pkg/v1/validate
	deploy/check:          jepsen server/zoocfg go.yaml.in/yaml/v3 internal/testcert github.com/go-zookeeper/zk
	                       helm.sh/helm/v4/pkg/chart/common helm.sh/helm/v4/pkg/chart/common/util helm.sh/helm/v4/pkg/chart/v2/lint
	                       helm.sh/helm/v4/pkg/chart/v2/lint/support helm.sh/helm/v4/pkg/chart/v2/loader helm.sh/helm/v4/pkg/engine
	                       k8s.io/api/apps/v1 k8s.io/api/core/v1 k8s.io/api/networking/v1 k8s.io/api/policy/v1
	                       k8s.io/apimachinery/pkg/apis/meta/v1 k8s.io/apimachinery/pkg/labels k8s.io/apimachinery/pkg/util/intstr
	                       k8s.io/apimachinery/pkg/util/yaml sigs.k8s.io/yaml
	                       github.com/compose-spec/compose-go/v2/cli github.com/compose-spec/compose-go/v2/types
	                       github.com/moby/buildkit/frontend/dockerfile/instructions github.com/moby/buildkit/frontend/dockerfile/parser
	jepsen/pages:          jepsen internal/freeport
	jepsen/site:           jepsen jepsen/report jepsen/workload github.com/chromedp/chromedp github.com/chromedp/cdproto/emulation
	jepsen:                recipes internal/testcert
	recipes/fence:         internal/s3test
	locktest:              recipes github.com/go-zookeeper/zk
	jepsen/bench:          bench jepsen github.com/go-zookeeper/zk
	znode:                 internal/freeport internal/cputime
	jepsen/console:        jepsen server/ops/console/web recipes github.com/go-zookeeper/zk github.com/chromedp/chromedp github.com/chromedp/chromedp/kb
	                       github.com/chromedp/cdproto/cdp github.com/chromedp/cdproto/emulation github.com/chromedp/cdproto/log
	                       github.com/chromedp/cdproto/network github.com/chromedp/cdproto/page github.com/chromedp/cdproto/runtime
	jepsen/curator:        jepsen
	jepsen/locklab:        jepsen/locklab/ledger jepsen/locklab/store
	jepsen/locklab/ways:   jepsen jepsen/locklab/system github.com/go-zookeeper/zk github.com/jackc/pgx/v5
	jepsen/locklab/fences: internal/freeport jepsen jepsen/locklab/system recipes/fence github.com/jackc/pgx/v5/stdlib modernc.org/sqlite
	                       github.com/redis/go-redis/v9 internal/s3test
	jepsen/kazoosuite:     jepsen
	jepsen/clients:        internal/freeport jepsen github.com/go-zookeeper/zk
	jepsen/zkcli:          jepsen
	jepsen/verdicts:       jepsen locknode recipes github.com/go-zookeeper/zk
	jepsen/tlsclients:     jepsen internal/testcert github.com/go-zookeeper/zk
	jepsen/differ:         wire jepsen internal/zkconn
	jepsen/flaws:          wire jepsen internal/zkconn
	jepsen/workload:       internal/simnet internal/simdisk server quorum quorum/peer quorum/store
	internal/simdisk:      internal/simnet github.com/hashicorp/go-hclog
	quorum/peer:           internal/simnet
	quorum/raftnet:        internal/rafttest
	quorum/wal:            internal/simdisk internal/rafttest
	quorum/store:          internal/simdisk internal/rafttest
	quorum:                quorum/wal internal/simnet internal/simdisk internal/rafttest internal/freeport
	server/secure/certs:   server/secure
	server/secure:         internal/testcert
	server:                zkdata session/sasl internal/cputime internal/simnet internal/simdisk internal/freeport internal/testcert github.com/hashicorp/raft
	server/ops/console:    session server/zoocfg
	server/httplock:       server locktest recipes internal/freeport
	cmd/lockkeeper:        wire zkdata session/sasl internal/freeport internal/testcert golang.org/x/sys/unix
	jepsen/simtest:        internal/simnet internal/simdisk jepsen/mutant internal/clock server server/ops/admin quorum quorum/model quorum/model/trace quorum/peer quorum/raftnet quorum/store znode wire
	                       recipes jepsen jepsen/workload github.com/go-zookeeper/zk github.com/hashicorp/raft
`

// standard is what the pure packages import of the standard library: nothing
// that has a clock, a socket, a file, a goroutine, chance or a log.
const standard = `
	wire:   bufio encoding/binary errors fmt io strconv strings unicode/utf8
	locknode: bytes cmp encoding/json fmt math slices strconv strings time
	quorum/model: context fmt math math/bits slices strings unsafe
	znode:  crypto/subtle encoding/binary encoding/hex errors fmt hash/crc32 hash/maphash io iter math net/netip slices sort
	        strconv strings sync/atomic unicode/utf8 bytes
`

// graph reads one of the texts above: by package, what it may import.
func graph(t *testing.T, text string) map[string][]string {
	t.Helper()
	g := make(map[string][]string)
	from := ""
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		if name, rest, ok := strings.Cut(line, ":"); ok {
			from, line = strings.TrimSpace(name), rest
			g[from] = []string{}
		}
		words := strings.Fields(line)
		if len(words) > 0 && from == "" {
			t.Fatalf("graph: no package before %q", line)
		}
		g[from] = append(g[from], words...)
	}
	delete(g, "")
	return g
}

// short is an import path as the graph has it.
func short(name string) string { return strings.TrimPrefix(name, module+"/") }

// isStandard says whether an import path is of the standard library.
func isStandard(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	return !strings.HasPrefix(name, module+"/") && !strings.Contains(first, ".")
}

func TestImports(t *testing.T) {
	allowed, allowedInTests := graph(t, imports), graph(t, testImports)
	for dir, p := range packages(t) {
		may, known := allowed[dir]
		if !known {
			t.Errorf("package %s is not in the import graph", dir)
			continue
		}
		uses := make(map[string]bool)
		for name := range p.imports(t, false) {
			if isStandard(name) {
				continue
			}
			uses[short(name)] = true
			if !slices.Contains(may, short(name)) {
				t.Errorf("%s imports %s: not in the import graph", dir, short(name))
			}
		}
		for _, name := range may {
			if !uses[name] {
				t.Errorf("%s does not import %s any more: take it out of the import graph", dir, name)
			}
		}
		for name := range p.imports(t, true) {
			if isStandard(name) || short(name) == dir || slices.Contains(may, short(name)) {
				continue
			}
			if !slices.Contains(allowedInTests[dir], short(name)) {
				t.Errorf("the tests of %s import %s: not in the import graph", dir, short(name))
			}
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(allowed)) {
		if packages(t)[dir] == nil {
			t.Errorf("the import graph has a package %s that does not exist", dir)
		}
	}
}

func TestPurePackages(t *testing.T) {
	for dir, may := range graph(t, standard) {
		p := packages(t)[dir]
		if p == nil {
			t.Errorf("there is no package %s", dir)
			continue
		}
		for name := range p.imports(t, false) {
			if isStandard(name) && !slices.Contains(may, name) {
				t.Errorf("%s imports %s: not among what a pure package may import", dir, name)
			}
		}
	}
}
