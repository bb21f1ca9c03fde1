// The launcher for ARM64: `launch PLAN PROGRAM ARGUMENT…` maps a plan and carries out its steps.
//
// It is launch-x86_64.s in another language, line by line; what is said there holds here.

        .set    ORIGIN, 0x400000
        .set    PLAN, 0x10000000        // BASE in steps.py
        .set    LONGEST, 0x1000000
        .set    ERRORS, 134
        .set    FAILED, 125
        .set    NOT_FOUND, 127
        .set    OPENAT, 56              // system calls
        .set    MMAP, 222
        .set    WRITE, 64
        .set    EXECVE, 221
        .set    WAIT4, 260
        .set    EXIT_GROUP, 94

file:   .byte   0x7f
        .ascii  "ELF"
        .byte   2, 1, 1, 0              // 64 bits, little end first
        .quad   0
        .short  2, 183                  // an executable, for ARM64
        .int    1
        .quad   ORIGIN + start - file
        .quad   segments - file
        .quad   0
        .int    0
        .short  64, 56, 2, 0, 0, 0
segments:
        .int    1, 5                    // this file, to be read and executed
        .quad   0, ORIGIN, ORIGIN, end - file, end - file, 0x10000
        .int    0x6474e551, 6           // a stack, not to be executed
        .quad   0, 0, 0, 0, 0, 16

start:  mov     x28, sp                 // argc, argv, 0, environment, 0
        sub     sp, sp, #64             // room for six arguments
        ldr     x0, [x28]
        cmp     x0, #3
        b.lo    unusable
        mov     x8, #OPENAT
        mov     x0, #-100
        ldr     x1, [x28, #16]
        mov     x2, #0x80000            // closed on exec
        mov     x3, #0
        svc     #0
        tbnz    x0, #63, unusable
        mov     x4, x0
        mov     x8, #MMAP
        mov     x27, #PLAN
        mov     x0, x27
        mov     x1, #LONGEST
        mov     x2, #3                  // to be read and written
        mov     x3, #2                  // a private copy, exactly there
        movk    x3, #0x10, lsl #16
        mov     x5, #0
        svc     #0
        cmp     x0, x27
        b.ne    unusable
        ldr     x19, [x0]

walk:   ldr     w20, [x19, #4]          // which arguments are results of earlier calls
        mov     x9, #6
argument:
        ldr     x10, [x19, x9, lsl #3]
        lsr     w11, w20, w9
        tbz     w11, #0, given
        ldr     x10, [x10]
given:  str     x10, [sp, x9, lsl #3]
        subs    x9, x9, #1
        b.ne    argument
        ldp     x0, x1, [sp, #8]
        ldp     x2, x3, [sp, #24]
        ldp     x4, x5, [sp, #40]
        ldr     w8, [x19]
        tbnz    w8, #31, other
        svc     #0
        mov     x21, x0
        ldr     x9, [x19, #56]
        str     x0, [x9]
        ldp     x10, x11, [x19, #64]
        ldr     x9, [x19, #80]
        cmp     x0, #0
        csel    x9, x11, x9, eq
        csel    x9, x10, x9, lt
        add     x19, x19, x9
        b       walk

other:  adds    w8, w8, #1              // -1: end as a child does, -2: become the program, -3: give up
        b.eq    end_as
        adds    w8, w8, #1
        b.ne    give_up

        add     x1, x28, #24
        ldr     x0, [x1]
        ldr     x2, [x28]
        add     x2, x28, x2, lsl #3
        add     x2, x2, #16
        mov     x8, #EXECVE
        svc     #0
        mov     x21, x0
        ldr     x0, [x28, #24]
        mov     x1, #NOT_FOUND

give_up:                                // says x0 and what the last call said, and ends with x1
        mov     x22, x1
        bl      say
        neg     x21, x21
        cmp     x21, #ERRORS
        csel    x21, x21, xzr, lo
        ldr     x0, [x27, #8]
        add     x0, x0, x21, lsl #6
        bl      say
        mov     x0, x22
leave:  mov     x8, #EXIT_GROUP
        svc     #0

end_as: mov     w19, w0                 // reaps whatever ends until this child does
next:   mov     x0, #-1
        mov     x1, sp
        mov     x2, #0
        mov     x3, #0
        mov     x8, #WAIT4
        svc     #0
        cmn     w0, #4                  // interrupted
        b.eq    next
        tbnz    w0, #31, lost
        cmp     w0, w19
        b.ne    next
        ldr     w9, [sp]
        ubfx    w0, w9, #8, #8
        ands    w9, w9, #0x7f
        b.eq    leave
        add     w0, w9, #128            // as a shell says that a signal ended it
        b       leave

unusable:
        adr     x0, message
        bl      say
lost:   mov     x0, #FAILED
        b       leave

say:    mov     x1, x0
        mov     x2, #0
length: ldrb    w9, [x1, x2]
        cbz     w9, write
        add     x2, x2, #1
        b       length
write:  mov     x0, #2
        mov     x8, #WRITE
        svc     #0
        ret

message:
        .asciz  "retinue sandbox: this is started by retinue, with a plan\n"
        .balign 4
end:
