#define ZMM 512
#define MASK 2560
#define GPR 2624
#define FLAGS 2752

    .bss
    .globl has_zmm, target
has_zmm: .skip 8
target: .skip 8
own_stack: .skip 8

    .text
    .globl enter_window, leave_window
enter_window:
    .irp register,rbx,rbp,r12,r13,r14,r15
    push %\register
    .endr
    mov %rsp, own_stack(%rip)
    fxrstor64 (%rdi)
    cmpb $0, has_zmm(%rip)
    je 1f
    .irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    vmovdqu64 ZMM+64*\n(%rdi), %zmm\n
    .endr
    .irp n,0,1,2,3,4,5,6,7
    kmovq MASK+8*\n(%rdi), %k\n
    .endr
    jmp 2f
1:
    .irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
    vmovdqu ZMM+64*\n(%rdi), %ymm\n
    .endr
2:
    pushq FLAGS(%rdi)
    popfq
    .set at, GPR
    .irp register,rax,rcx,rdx,rbx,rsp,rbp,rsi,rdi,r8,r9,r10,r11,r12,r13,r14,r15
    .ifnc \register,rdi
    mov at(%rdi), %\register
    .endif
    .set at, at+8
    .endr
    mov GPR+56(%rdi), %rdi
    jmp *target(%rip)

leave_window:
    .set at, GPR
    .irp register,rax,rcx,rdx,rbx,rsp,rbp,rsi,rdi,r8,r9,r10,r11,r12,r13,r14,r15
    mov %\register, saved+at(%rip)
    .set at, at+8
    .endr
    mov own_stack(%rip), %rsp
    pushfq
    popq saved+FLAGS(%rip)
    cld
    lea saved(%rip), %rdi
    fxsave64 (%rdi)
    cmpb $0, has_zmm(%rip)
    je 1f
    .irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    vmovdqu64 %zmm\n, ZMM+64*\n(%rdi)
    .endr
    .irp n,0,1,2,3,4,5,6,7
    kmovq %k\n, MASK+8*\n(%rdi)
    .endr
    jmp 2f
1:
    .irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
    vmovdqu %ymm\n, ZMM+64*\n(%rdi)
    .endr
2:
    fxrstor64 at_rest(%rip)
    vzeroupper
    .irp register,r15,r14,r13,r12,rbp,rbx
    pop %\register
    .endr
    ret

    .section .note.GNU-stack,"",@progbits
