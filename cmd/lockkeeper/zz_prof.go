package main

import (
	"net/http"
	_ "net/http/pprof"
	"os"
	"runtime"
)

func init() {
	if a := os.Getenv("LK_PPROF"); a != "" {
		runtime.SetMutexProfileFraction(5)
		go http.ListenAndServe(a, nil)
	}
}
