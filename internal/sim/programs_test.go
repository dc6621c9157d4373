package sim

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// step is what one run of a program does. A container has one step per start,
// the last one again and again. They are written in the container's args.
type step struct {
	forever bool
	after   time.Duration
	code    int32
	// deaf programs ignore the stop signal.
	deaf bool
	// dies is how long it takes to end after the stop signal, and with what.
	dies     time.Duration
	diesWith int32
}

// parseStep reads "5s:0" (ends after 5s with 0) and "forever", either with
// "!" for deaf, "~3s" for the time that it takes to stop and "=7" for the code.
func parseStep(text string) step {
	s := step{diesWith: 143, dies: 20 * time.Millisecond}
	head, dies, ok := strings.Cut(text, "~")
	if ok {
		dies, code, given := strings.Cut(dies, "=")
		s.dies = mustDuration(dies)
		if given {
			s.diesWith = mustCode(code)
		}
	}
	head, s.deaf = strings.CutSuffix(head, "!")
	if head == "forever" {
		s.forever = true
		return s
	}
	after, code, _ := strings.Cut(head, ":")
	s.after, s.code = mustDuration(after), mustCode(code)
	return s
}

func mustDuration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(fmt.Sprintf("a program of the simulator is wrong: %v", err))
	}
	return d
}

func mustCode(text string) int32 {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		panic(fmt.Sprintf("a program of the simulator is wrong: %v", err))
	}
	return int32(n)
}

// stepOf returns what the n-th run of a container does.
func stepOf(c *corev1.Container, n int) step {
	return parseStep(c.Args[min(n, len(c.Args)-1)])
}
