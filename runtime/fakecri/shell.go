package fakecri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// shell runs one command line, be it a container's own or one by ExecSync. It belongs to one goroutine.
type shell struct {
	process *Process
	ended   <-chan struct{} // the program must stop: the container was killed, or the exec's time is over
	term    <-chan struct{} // nil once a TERM has been dealt with, and for ExecSync
	init    bool
	stdout  func(string)
	stderr  func(string)

	trap       *string // what a TERM runs; nil for the default, "" to ignore it
	pending    bool    // a trap waits for a foreground command to end
	exiting    bool
	code       int
	background []time.Time // when background sleeps end
}

const forever = 100 * 365 * 24 * time.Hour

// known are the commands of the interpreter, whatever directory they are called in.
func known() []string {
	return []string{
		"sh", "sleep", "true", "false", ":", "echo", "cat", "touch", "rm", "test", "[", "exit", "trap", "wait", "date",
		"hostname", "oom", "exec", "pause", "env", "top", "ls", "pgrep",
	}
}

// startable tells why a runtime could not start a command at all.
func startable(command []string) error {
	if command[0] == "" {
		return errNoCommand
	}
	if !slices.Contains(known(), path.Base(command[0])) {
		return fmt.Errorf("exec: %q: executable file not found in $PATH", command[0])
	}
	return nil
}

// interpret is the program of containers without a hook.
func interpret(_ context.Context, p *Process) int {
	sh := &shell{process: p, ended: p.killed, term: p.terminated, init: p.Init, stdout: p.Stdout, stderr: p.Stderr}
	code := sh.run(p.Command)
	if sh.exiting {
		return sh.code
	}
	return code
}

// run executes one simple command and returns its exit code; check exiting afterwards.
func (sh *shell) run(words []string) int {
	if len(words) == 0 {
		return 0
	}
	args := words[1:]
	switch path.Base(words[0]) {
	case "true", ":":
		return 0
	case "false":
		return 1
	case "sh":
		return sh.runShell(args)
	case "exec":
		sh.exit(sh.run(args))
		return sh.code
	case "exit":
		sh.exit(number(args))
		return sh.code
	case "sleep":
		return sh.sleep(args)
	case "pause", "top":
		return sh.untilTERM()
	case "wait":
		return sh.wait()
	case "trap":
		return sh.setTrap(args)
	case "oom":
		sh.process.OutOfMemory()
		sh.exit(killedCode)
		return killedCode
	default:
		return sh.runTool(path.Base(words[0]), args)
	}
}

func (sh *shell) runTool(name string, args []string) int {
	switch name {
	case "echo":
		if len(args) > 0 && args[0] == "-n" {
			sh.stdout(strings.Join(args[1:], " "))
			return 0
		}
		sh.stdout(strings.Join(args, " ") + "\n")
		return 0
	case "pgrep":
		return 1 // an exec sees no processes but its own
	case "date":
		sh.stdout(time.Now().UTC().Format(time.RFC3339) + "\n")
		return 0
	case "hostname":
		sh.stdout(sh.process.hostname + "\n")
		return 0
	case "env":
		for _, key := range sortedKeys(sh.process.Env) {
			sh.stdout(key + "=" + sh.process.Env[key] + "\n")
		}
		return 0
	default:
		return sh.runFileTool(name, args)
	}
}

func (sh *shell) runFileTool(name string, args []string) int {
	switch name {
	case "ls":
		return sh.ls(args)
	case "cat":
		return sh.cat(args)
	case "touch":
		for _, file := range args {
			sh.process.files.write(file, "", true)
		}
		return 0
	case "rm":
		for _, file := range args {
			sh.process.files.remove(file)
		}
		return 0
	case "test", "[":
		return sh.test(args)
	default:
		sh.stderr("sh: " + name + ": not found\n")
		return 127
	}
}

// untilTERM is a program with a handler of its own: it ends with 0, also as the first process of a namespace.
func (sh *shell) untilTERM() int {
	action := "exit 0"
	sh.trap = &action
	return sh.pause(forever, true)
}

func (sh *shell) ls(args []string) int {
	args = slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return strings.HasPrefix(arg, "-") })
	for _, file := range args {
		under := sh.process.files.under(file)
		for _, name := range under {
			sh.stdout(name + "\n")
		}
		if len(under) == 0 {
			sh.stderr("ls: " + file + ": No such file or directory\n")
			return 1
		}
	}
	return 0
}

func (sh *shell) cat(args []string) int {
	for _, file := range args {
		content, found := sh.process.files.read(file)
		if !found {
			sh.stderr("cat: can't open '" + file + "': No such file or directory\n")
			return 1
		}
		sh.stdout(content)
	}
	return 0
}

func (sh *shell) test(args []string) int {
	args = slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return arg == "]" })
	var holds bool
	switch {
	case len(args) == 2 && (args[0] == "-f" || args[0] == "-e"):
		_, holds = sh.process.files.read(args[1])
	case len(args) == 3 && args[0] == "!" && (args[1] == "-f" || args[1] == "-e"):
		_, found := sh.process.files.read(args[2])
		holds = !found
	case len(args) == 3 && args[1] == "=":
		holds = args[0] == args[2]
	case len(args) == 3 && args[1] == "!=":
		holds = args[0] != args[2]
	default:
		sh.stderr("sh: test: the fake shell does not know these operands\n")
		return 2
	}
	if holds {
		return 0
	}
	return 1
}

func (sh *shell) runShell(args []string) int {
	if len(args) == 0 {
		return 0 // nothing comes from standard input
	}
	if len(args) < 2 || args[0] != "-c" {
		sh.stderr("sh: the fake shell takes only -c and a script\n")
		return 2
	}
	steps, err := parseScript(args[1])
	if err != nil {
		sh.stderr("sh: " + err.Error() + "\n")
		return 2
	}
	return sh.runSteps(steps)
}

func (sh *shell) runSteps(steps []step) int {
	code := 0
	for _, s := range steps {
		if s.connector == "&&" && code != 0 || s.connector == "||" && code == 0 {
			continue
		}
		code = sh.runStep(s)
		if sh.exiting {
			return sh.code
		}
	}
	return code
}

func (sh *shell) runStep(s step) int {
	switch s.kind {
	case loopStep:
		for !sh.exiting {
			if sh.runSteps(s.condition) != 0 {
				return 0
			}
			sh.runSteps(s.body)
			// A loop without anything that blocks would never see a signal.
			if !sh.exiting {
				sh.pause(time.Millisecond, false)
			}
		}
		return sh.code
	case branchStep:
		if sh.runSteps(s.condition) == 0 {
			return sh.runSteps(s.body)
		}
		return sh.runSteps(s.otherwise)
	case simpleStep:
	}
	words := make([]string, len(s.words))
	for i, word := range s.words {
		words[i] = strings.ReplaceAll(os.Expand(word, func(key string) string { return sh.process.Env[key] }), literalDollar, "$")
	}
	if s.background {
		return sh.startBackground(words)
	}
	before := sh.stdout
	defer func() { sh.stdout = before }()
	switch {
	case s.redirect == "&2":
		sh.stdout = sh.stderr
	case s.redirect != "":
		if !s.appending {
			sh.process.files.write(s.redirect, "", false)
		}
		sh.stdout = func(text string) { sh.process.files.write(s.redirect, text, true) }
	}
	return sh.run(words)
}

func (sh *shell) startBackground(words []string) int {
	if len(words) == 0 || path.Base(words[0]) != "sleep" {
		sh.stderr("sh: the fake shell can only sleep in the background\n")
		return 2
	}
	d, err := duration(words[1:])
	if err != nil {
		sh.stderr("sleep: " + err.Error() + "\n")
		return 1
	}
	sh.background = append(sh.background, time.Now().Add(d))
	return 0
}

func (sh *shell) wait() int {
	for len(sh.background) > 0 && !sh.exiting {
		latest := slices.MaxFunc(sh.background, time.Time.Compare)
		if code := sh.pause(time.Until(latest), true); code != 0 {
			return code
		}
		sh.background = nil
	}
	return 0
}

func (sh *shell) setTrap(args []string) int {
	if len(args) < 2 {
		sh.stderr("sh: trap: the fake shell needs an action and a signal\n")
		return 2
	}
	action := args[0]
	for _, signal := range args[1:] {
		if signal = strings.TrimPrefix(signal, "SIG"); signal == "TERM" || signal == "15" {
			sh.trap = &action
			if action == "-" {
				sh.trap = nil
			}
		}
	}
	return 0
}

func (sh *shell) sleep(args []string) int {
	d, err := duration(args)
	if err != nil {
		sh.stderr("sleep: " + err.Error() + "\n")
		return 1
	}
	return sh.pause(d, false)
}

// pause lets time pass. A trap interrupts it if it is interruptible, and otherwise runs when it is over.
func (sh *shell) pause(d time.Duration, interruptible bool) int {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			if sh.pending {
				sh.pending = false
				sh.runTrap()
			}
			return 0
		case <-sh.ended:
			sh.exit(killedCode)
			return killedCode
		case <-sh.term:
			sh.term = nil
			switch {
			case sh.trap == nil && sh.init, sh.trap != nil && *sh.trap == "":
			case sh.trap == nil:
				sh.exit(terminatedCode)
				return terminatedCode
			case interruptible:
				sh.runTrap()
				return terminatedCode
			default:
				sh.pending = true
			}
		}
	}
}

func (sh *shell) runTrap() {
	steps, err := parseScript(*sh.trap)
	if err != nil {
		sh.stderr("sh: " + err.Error() + "\n")
		return
	}
	sh.runSteps(steps)
}

func (sh *shell) exit(code int) {
	if !sh.exiting {
		sh.exiting, sh.code = true, code
	}
}

func number(args []string) int {
	if len(args) == 0 {
		return 0
	}
	code, err := strconv.Atoi(args[0])
	if err != nil {
		return 2
	}
	return code & 0xff
}

func duration(args []string) (time.Duration, error) {
	if len(args) != 1 {
		return 0, errors.New("the fake sleep takes one duration")
	}
	if args[0] == "infinity" || args[0] == "inf" {
		return forever, nil
	}
	if seconds, err := strconv.ParseFloat(args[0], 64); err == nil && seconds >= 0 {
		return time.Duration(seconds * float64(time.Second)), nil
	}
	if d, err := time.ParseDuration(args[0]); err == nil && d >= 0 {
		return d, nil
	}
	return 0, fmt.Errorf("invalid number '%s'", args[0])
}
