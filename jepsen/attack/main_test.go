package attack

import (
	"flag"
	"log"
	"os"
	"testing"

	"lockkeeper/jepsen"
)

// tools are the programs that the tests start.
var tools *jepsen.Toolbox

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(runTests(m))
}

// runTests is jepsen.Main, but the server never has the race detector: the attacks measure its time
// and its memory, of which that takes several times as much.
func runTests(m *testing.M) (status int) {
	var err error
	if tools, err = jepsen.NewToolbox(false); err != nil {
		log.Print(err)
		return 1
	}
	defer func() {
		if err := tools.Close(); err != nil {
			log.Print(err)
		}
	}()
	return m.Run()
}
