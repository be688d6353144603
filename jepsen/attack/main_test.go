package attack

import (
	"flag"
	"os"
	"testing"

	"lockkeeper/jepsen"
)

// tools are the programs that the tests start.
var tools *jepsen.Toolbox

// TestMain builds the server without the race detector, even if the tests have it: the attacks
// measure its time and its memory, of which the detector takes several times as much.
func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(jepsen.Main(m, &tools, false))
}
